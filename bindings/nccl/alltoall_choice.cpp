#include "alltoall_choice.hpp"

#include <string>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "convert.hpp"
#include "cuda_driver.hpp"

namespace epccl::nccl {
namespace {

constexpr const char* setting = "EPCCL_NCCL_ALLTOALL";

enum class Wish { automatic, native, real };

Result<Wish> read_wish() {
  const std::string text = settings::get(setting);
  if (text == "auto") return Wish::automatic;
  if (text == "native") return Wish::native;
  if (text == "real") return Wish::real;
  return error(Code::invalid_argument, "{}=\"{}\" is unknown: auto, native or real", setting, text);
}

struct Vote {
  int engines = 0;
  char why_not[280] = {};
  int mine = 0, everybody = 0;
};

// One group for all communicators of this thread: their other ranks may be this thread's too.
template <typename Call>
Status in_one_group(std::vector<AlltoallQuestion>& all, std::vector<Vote>& votes, Call call) {
  EPCCL_TRY(status_of(epcclGroupStart()));
  for (size_t i = 0; i < all.size(); ++i) (void)call(all[i], votes[i]);  // the group's end tells
  return status_of(epcclGroupEnd());
}

void tell(const AlltoallQuestion& question, const Vote& vote, Wish wish) {
  int rank = -1;
  (void)epcclCommUserRank(native(question.comm), &rank);
  const char* why = "";
  if (question.is_native)
    why = vote.engines != 0 ? "copy engines reach all ranks" : "as asked for";
  else if (wish != Wish::automatic || vote.engines != 0)
    why = "as asked for, here or on another rank";
  else
    why = vote.why_not;
  log::info(log::init, rank, "ncclAlltoAll with CUDA memory: {} ({})",
            question.is_native ? "EPCCL" : "the real NCCL", why);
}

}  // namespace

// Every rank asks, whatever its own wish: others may wish something else.
Status choose_alltoall(std::vector<AlltoallQuestion>& all) {
  if (all.empty()) return {};
  EPCCL_ASSIGN(const Wish wish, read_wish());
  const bool has_gpu = gpu_present();
  std::vector<Vote> votes(all.size());
  void* const before = current_context();
  Status status = in_one_group(all, votes, [&](const AlltoallQuestion& question, Vote& vote) {
    if (question.context != nullptr) make_current(question.context);
    return epcclCommCheckCopyEngines(native(question.comm), has_gpu ? question.device : EPCCL_NO_GPU,
                                     &vote.engines, vote.why_not, sizeof vote.why_not);
  });
  make_current(before);
  EPCCL_TRY(std::move(status));
  EPCCL_TRY(in_one_group(all, votes, [&](const AlltoallQuestion& question, Vote& vote) {
    vote.mine = wish == Wish::native ? static_cast<int>(has_gpu) : wish == Wish::real ? 0 : vote.engines;
    return epcclAllReduce(&vote.mine, &vote.everybody, 1, epcclInt32, epcclMin, native(question.comm),
                          nullptr);
  }));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].is_native = votes[i].everybody != 0;
    tell(all[i], votes[i], wish);
  }
  return {};
}

}  // namespace epccl::nccl
