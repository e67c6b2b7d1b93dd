#include "native_choice.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "cuda_driver.hpp"
#include "native_group.hpp"

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

bool wants_nothing_native() {
  const Result<Wishes> wishes = read_wishes();
  return wishes.ok() && std::ranges::all_of(*wishes, [](Wish wish) { return wish == Wish::real; });
}

// Every rank asks, whatever its own wish: others may wish something else.
Status choose_native(std::vector<NativeQuestion>& all) {
  if (all.empty()) return {};
  EPCCL_ASSIGN(const Wishes wishes, read_wishes());
  const bool has_gpu = gpu_present();
  std::vector<Vote> votes(all.size());
  Status status = in_one_native_group(all.size(), [&](size_t i) {
    const WithContext current(all[i].context);
    return epcclCommCheckCopyEngines(native(all[i].comm), has_gpu ? all[i].device : EPCCL_NO_GPU,
                                     &votes[i].engines, votes[i].why_not, sizeof votes[i].why_not);
  });
  EPCCL_TRY(std::move(status));
  EPCCL_TRY(in_one_native_group(all.size(), [&](size_t one) {
    Vote& vote = votes[one];
    for (size_t i = 0; i < choices.size(); ++i)
      vote.mine[i] = wishes[i] == Wish::native ? static_cast<int>(has_gpu)
                     : wishes[i] == Wish::real ? 0
                                               : vote.engines;
    return epcclAllReduce(vote.mine.data(), vote.everybody.data(), vote.mine.size(), epcclInt32, epcclMin,
                          native(all[one].comm), nullptr);
  }));
  for (size_t one = 0; one < all.size(); ++one)
    for (size_t i = 0; i < choices.size(); ++i) {
      all[one].*choices[i].answer = votes[one].everybody[i] != 0;
      tell(all[one], votes[one], choices[i], wishes[i]);
    }
  return {};
}

}  // namespace epccl::nccl
