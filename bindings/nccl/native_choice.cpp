#include "native_choice.hpp"

#include <array>
#include <string>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "convert.hpp"
#include "cuda_driver.hpp"

namespace epccl::nccl {
namespace {

enum class Wish { automatic, native, real };

/// What is chosen, each by a setting of its own.
struct Choice {
  const char* setting;
  const char* what;
  bool NativeQuestion::*answer;
};
constexpr std::array choices{
    Choice{"EPCCL_NCCL_ALLTOALL", "ncclAlltoAll", &NativeQuestion::alltoall},
    Choice{"EPCCL_NCCL_GROUPS", "ncclSend and ncclRecv", &NativeQuestion::groups},
};
using Wishes = std::array<Wish, choices.size()>;

Result<Wishes> read_wishes() {
  Wishes wishes{};
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string text = settings::get(choices[i].setting);
    if (text == "native")
      wishes[i] = Wish::native;
    else if (text == "real")
      wishes[i] = Wish::real;
    else if (text != "auto")
      return error(Code::invalid_argument, "{}=\"{}\" is unknown: auto, native or real", choices[i].setting,
                   text);
  }
  return wishes;
}

struct Vote {
  int engines = 0;
  char why_not[280] = {};
  std::array<int, choices.size()> mine{}, everybody{};
};

// One group for all communicators of this thread: their other ranks may be this thread's too.
template <typename Call>
Status in_one_group(std::vector<NativeQuestion>& all, std::vector<Vote>& votes, Call call) {
  EPCCL_TRY(status_of(epcclGroupStart()));
  for (size_t i = 0; i < all.size(); ++i) (void)call(all[i], votes[i]);  // the group's end tells
  return status_of(epcclGroupEnd());
}

void tell(const NativeQuestion& question, const Vote& vote, const Choice& choice, Wish wish) {
  int rank = -1;
  (void)epcclCommUserRank(native(question.comm), &rank);
  const bool is_native = question.*choice.answer;
  const char* why = "";
  if (is_native)
    why = vote.engines != 0 ? "copy engines reach all ranks" : "as asked for";
  else if (wish != Wish::automatic || vote.engines != 0)
    why = "as asked for, here or on another rank";
  else
    why = vote.why_not;
  log::info(log::init, rank, "{} with CUDA memory: {} ({})", choice.what,
            is_native ? "EPCCL" : "the real NCCL", why);
}

}  // namespace

// Every rank asks, whatever its own wish: others may wish something else.
Status choose_native(std::vector<NativeQuestion>& all) {
  if (all.empty()) return {};
  EPCCL_ASSIGN(const Wishes wishes, read_wishes());
  const bool has_gpu = gpu_present();
  std::vector<Vote> votes(all.size());
  void* const before = current_context();
  Status status = in_one_group(all, votes, [&](const NativeQuestion& question, Vote& vote) {
    if (question.context != nullptr) make_current(question.context);
    return epcclCommCheckCopyEngines(native(question.comm), has_gpu ? question.device : EPCCL_NO_GPU,
                                     &vote.engines, vote.why_not, sizeof vote.why_not);
  });
  make_current(before);
  EPCCL_TRY(std::move(status));
  EPCCL_TRY(in_one_group(all, votes, [&](const NativeQuestion& question, Vote& vote) {
    for (size_t i = 0; i < choices.size(); ++i)
      vote.mine[i] = wishes[i] == Wish::native ? static_cast<int>(has_gpu)
                     : wishes[i] == Wish::real ? 0
                                               : vote.engines;
    return epcclAllReduce(vote.mine.data(), vote.everybody.data(), vote.mine.size(), epcclInt32, epcclMin,
                          native(question.comm), nullptr);
  }));
  for (size_t one = 0; one < all.size(); ++one)
    for (size_t i = 0; i < choices.size(); ++i) {
      all[one].*choices[i].answer = votes[one].everybody[i] != 0;
      tell(all[one], votes[one], choices[i], wishes[i]);
    }
  return {};
}

}  // namespace epccl::nccl
