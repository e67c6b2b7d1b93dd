#include "api/message_moves.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace epccl::api {
namespace {

constexpr useconds_t shortest_nap = 20, longest_nap = 500;  // microseconds
constexpr double awake = 200e-6;                            // before the first of these
constexpr double check_period = 1e-3;

class MessageMoves {
 public:
  explicit MessageMoves(std::vector<runtime::Communicator*> open) : open_(std::move(open)) {
    for (auto* communicator : open_) communicator->waiter().begin(communicator->cluster().nodes() > 1);
  }

  Status run() {
    while (!open_.empty()) {
      EPCCL_TRY(check_others());
      EPCCL_ASSIGN(const bool moved, sweep());
      if (moved) {
        nap_ = shortest_nap;
        if (open_.size() > 1) moved_at_ = now_seconds();
      } else if (!open_.empty()) {
        EPCCL_TRY(open_.size() > 1 ? wait_for_several() : wait_for_one());
      }
    }
    return {};
  }

 private:
  /// Whether anything moved. What is through is open no more.
  Result<bool> sweep() {
    bool moved = false;
    for (auto* communicator : open_) {
      EPCCL_ASSIGN(const bool one, communicator->p2p().progress());
      if (one) communicator->waiter().moved();
      moved |= one;
    }
    std::erase_if(open_, [](auto* communicator) { return communicator->p2p().done(); });
    return moved;
  }

  // A wait hears only of the first one's failures.
  Status check_others() {
    if (open_.size() == 1 || now_seconds() < next_check_) return {};
    next_check_ = now_seconds() + check_period;
    for (auto* communicator : open_) EPCCL_TRY(communicator->check());
    return {};
  }

  auto situation() {
    return [&p2p = open_.front()->p2p()] {
      return runtime::Waiter::Situation{0, "send/recv group", p2p.waiting_text(), p2p.waited_for()};
    };
  }

  // Nobody can sleep on several communicators' bells at once, and a bell of the others would go unheard. At first it only yields.
  Status wait_for_several() {
    if (now_seconds() - moved_at_ > awake) {
      usleep(nap_);
      nap_ = std::min(2 * nap_, longest_nap);
    }
    return open_.front()->waiter().nap(situation(), runtime::Waiter::For::others);
  }

  Status wait_for_one() {
    runtime::Communicator& only = *open_.front();
    const auto what = situation();
    if (only.p2p().copies_pending()) return only.waiter().nap(what);
    Status swept;
    const auto again = [&] {
      auto result = sweep();
      const bool value = !result.ok() || *result;
      swept = std::move(result).take_status();
      return value;
    };
    EPCCL_TRY(
        only.waiter().idle([] { return transports::SleepFor{}; }, only.p2p().network_pending(), again, what));
    return swept;
  }

  std::vector<runtime::Communicator*> open_;
  double next_check_ = 0;
  useconds_t nap_ = shortest_nap;
  double moved_at_ = now_seconds();
};

}  // namespace

Status move_messages(std::vector<runtime::Communicator*> open) {
  return MessageMoves(std::move(open)).run();
}

}  // namespace epccl::api
