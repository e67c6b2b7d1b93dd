#include "meeting.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "errors.hpp"
#include "from_store.hpp"

namespace epccl_torch {
namespace {

using std::chrono::milliseconds, std::chrono::steady_clock;

// In the store: one byte, then the id or why there is none.
constexpr uint8_t an_id = 1, an_error = 2;

std::vector<uint8_t> marked(uint8_t mark, const char* begin, size_t size) {
  std::vector<uint8_t> value(1 + size);
  value[0] = mark;
  std::memcpy(value.data() + 1, begin, size);
  return value;
}

epcclUniqueId give(const Meeting& meeting) {
  epcclUniqueId id;
  const bool made = epcclGetUniqueId(&id) == epcclSuccess;
  const std::string why = made ? "" : epcclGetLastError(nullptr);
  meeting.store->set(meeting.key, made ? marked(an_id, id.internal, sizeof id.internal)
                                       : marked(an_error, why.data(), why.size()));
  TORCH_CHECK_WITH(DistBackendError, made, "epccl: ", meeting.name, ": ", why);
  return id;
}

bool of_two(const Meeting& meeting) {
  return !meeting.other_left.empty();
}

void check_not_left(const Meeting& meeting, bool left) {
  TORCH_CHECK_WITH(DistBackendError, !left, "epccl: ", meeting.name, ": rank ", 1 - meeting.rank,
                   " of this pair has left the process group");
}

void wait_for(const Meeting& meeting, const std::string& key, int whom) {
  const milliseconds timeout = *meeting.timeout;
  const auto end = steady_clock::now() + timeout;
  for (milliseconds pause{1};; pause = std::min(2 * pause, milliseconds(20))) {
    // Asked first: who left may have come before.
    const bool left = of_two(meeting) && meeting.store->check({meeting.other_left});
    if (meeting.store->check({key})) return;
    check_not_left(meeting, left);
    meeting.go_on();
    if (steady_clock::now() >= end)
      std::rethrow_exception(error_of<TimedOut>(meeting.name, ": rank ", whom, " of ", meeting.ranks,
                                                " has not come within ", timeout.count(), " ms (rank ",
                                                meeting.rank, " waits for it)"));
    std::this_thread::sleep_for(pause);
  }
}

epcclUniqueId take(const Meeting& meeting) {
  wait_for(meeting, meeting.key, 0);
  const std::vector<uint8_t> value = meeting.store->get(meeting.key);
  TORCH_CHECK_WITH(DistBackendError, value.size() == 1 + sizeof(epcclUniqueId) && value[0] == an_id,
                   "epccl: ", meeting.name, ": rank 0 could not make an id: ",
                   std::string(value.begin() + (value.empty() ? 0 : 1), value.end()));
  epcclUniqueId id;
  std::memcpy(id.internal, value.data() + 1, sizeof id.internal);
  return id;
}

epcclUniqueId exchange_id(const Meeting& meeting) {
  if (of_two(meeting) && meeting.rank == 0) wait_for(meeting, meeting.key + "/here", 1);
  if (of_two(meeting) && meeting.rank == 1)
    meeting.store->set(meeting.key + "/here", std::vector<uint8_t>{1});
  return meeting.rank == 0 ? give(meeting) : take(meeting);
}

}  // namespace

std::shared_ptr<Communicator> meet(const Meeting& meeting) {
  const epcclUniqueId id = from_store(meeting.name, [&] { return exchange_id(meeting); });
  const auto go_on = [&meeting] {
    meeting.go_on();
    // Only rank 0, which sends: what came from one that has left since is received.
    if (of_two(meeting) && meeting.rank == 0)
      check_not_left(meeting,
                     from_store(meeting.name, [&] { return meeting.store->check({meeting.other_left}); }));
  };
  return std::make_shared<Communicator>(id, meeting.ranks, meeting.rank, in_seconds(*meeting.timeout),
                                        meeting.name, go_on);
}

}  // namespace epccl_torch
