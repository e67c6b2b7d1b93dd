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
};
constexpr std::array choices{
    Choice{"EPCCL_NCCL_ALLTOALL", "ncclAlltoAll"},
    Choice{"EPCCL_NCCL_GROUPS", "ncclSend and ncclRecv"},
    Choice{"EPCCL_NCCL_COLLECTIVES", "the other collectives"},
};
constexpr size_t alltoall = 0, groups = 1, collectives = 2;
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

bool all_are(Wish expected) {
  const Result<Wishes> wishes = read_wishes();
  return wishes.ok() && std::ranges::all_of(*wishes, [&](Wish wish) { return wish == expected; });
}

// What a rank says of a choice; the least of all ranks' counts.
constexpr int by_real = 0, by_engines = 1, by_epccl = 2;

struct Vote {
  int engines = 0;
  char why_not[280] = {};
  std::array<int, choices.size()> mine{}, everybody{};
};

int say(Wish wish, bool engines, bool has_gpu) {
  if (wish == Wish::native) return has_gpu ? by_epccl : by_real;
  return wish == Wish::automatic && engines ? by_engines : by_real;
}

const char* runner_of(size_t choice, int agreed) {
  if (agreed == by_real) return "the real NCCL";
  return choice == collectives && agreed == by_engines ? "the real NCCL, or EPCCL where there is none"
                                                       : "EPCCL";
}

void tell(const NativeQuestion& question, const Vote& vote, size_t choice, Wish wish) {
  int rank = -1;
  (void)epcclCommUserRank(native(question.comm), &rank);
  const int agreed = vote.everybody[choice];
  const char* why = "";
  if (agreed != by_real)
    why = agreed == by_engines ? "copy engines reach all ranks" : "as asked for";
  else if (wish != Wish::automatic || vote.engines != 0)
    why = "as asked for, here or on another rank";
  else
    why = vote.why_not;
  log::info(log::init, rank, "{} with CUDA memory: {} ({})", choices[choice].what, runner_of(choice, agreed),
            why);
}

}  // namespace

Status runs_everything() {
  return {Code::invalid_usage,
          "EPCCL was to run all calls (EPCCL_NCCL_ALLTOALL, EPCCL_NCCL_GROUPS and EPCCL_NCCL_COLLECTIVES "
          "were native "
          "on all ranks)"};
}

bool wants_nothing_native() {
  return all_are(Wish::real);
}

bool wants_everything_native() {
  return all_are(Wish::native);
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
    for (size_t i = 0; i < choices.size(); ++i) vote.mine[i] = say(wishes[i], vote.engines != 0, has_gpu);
    return epcclAllReduce(vote.mine.data(), vote.everybody.data(), vote.mine.size(), epcclInt32, epcclMin,
                          native(all[one].comm), nullptr);
  }));
  for (size_t one = 0; one < all.size(); ++one) {
    const auto& agreed = votes[one].everybody;
    NativeAnswers& answers = all[one].answers;
    answers.alltoall = agreed[alltoall] != by_real;
    answers.groups = agreed[groups] != by_real;
    answers.collectives = agreed[collectives] == by_epccl     ? Collectives::native
                          : agreed[collectives] == by_engines ? Collectives::native_without_real
                                                              : Collectives::real;
    answers.asked_for_all = std::ranges::all_of(agreed, [](int each) { return each == by_epccl; });
    for (size_t i = 0; i < choices.size(); ++i) tell(all[one], votes[one], i, wishes[i]);
  }
  return {};
}

}  // namespace epccl::nccl
