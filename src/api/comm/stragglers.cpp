// Which ranks keep the others waiting.
#include "epccl/stragglers.h"

#include <algorithm>
#include <optional>

#include "api/groups/group.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "api/handles/sized_struct.hpp"

namespace epccl::api {
namespace {

using runtime::LateBy;
using runtime::Lateness;

epcclLateness_t to_public(LateBy by) {
  switch (by) {
    case LateBy::nothing:
      return epcclNotLate;
    case LateBy::between_calls:
      return epcclLateBetweenCalls;
    case LateBy::own_work:
      return epcclLateInCalls;
    case LateBy::others:
      return epcclLateOtherwise;
  }
  __builtin_unreachable();
}

epcclRankTimes_t to_public(const runtime::RankLateness& rank) {
  return {.late = rank.late,
          .between = rank.between,
          .own = rank.own,
          .waited = rank.waited,
          .lastCalls = rank.last_in,
          .lateBy = to_public(rank.by)};
}

// That one of the ranks does not measure all of them know: it is no failure of the communicator.
Result<Lateness> compare(runtime::Communicator& communicator, double threshold) {
  std::optional<Result<Lateness>> found;
  EPCCL_TRY(run_now(communicator, [&]() -> Status {
    found = communicator.find_stragglers(threshold);
    const bool agreed = found->ok() || found->status().code() == Code::invalid_usage;
    return agreed ? Status{} : found->status();
  }));
  return std::move(*found);
}

Status find_stragglers(epcclComm_t comm, epcclStragglers_t* out, epcclRankTimes_t* ranks) {
  EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
  if (in_group()) return {Code::invalid_usage, "stragglers cannot be looked for within a group"};
  if (out == nullptr) return {Code::invalid_argument, "found is NULL"};
  const epcclStragglers_t zeros = EPCCL_STRAGGLERS_INITIALIZER;
  EPCCL_ASSIGN(epcclStragglers_t told, read_sized("found", *out, zeros, "EPCCL_STRAGGLERS_INITIALIZER"));
  if (!(told.threshold >= 0 && told.threshold <= 1))
    return error(Code::invalid_argument, "threshold is {}: a share of the time from 0 to 1 is needed",
                 told.threshold);
  EPCCL_ASSIGN(const Lateness found, compare(*communicator, told.threshold));
  told.calls = found.calls;
  told.seconds = found.seconds;
  told.lost = found.lost;
  told.late = static_cast<int>(std::ranges::count_if(found.ranks, &runtime::RankLateness::is_late));
  if (ranks != nullptr)
    std::ranges::transform(found.ranks, ranks,
                           [](const runtime::RankLateness& rank) { return to_public(rank); });
  write_sized(out, told);
  return {};
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommFindStragglers(epcclComm_t comm, epcclStragglers_t* found, epcclRankTimes_t* ranks) {
  return guarded([&] { return find_stragglers(comm, found, ranks); });
}
