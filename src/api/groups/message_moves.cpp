#include "api/groups/message_moves.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/caught.hpp"
#include "base/clock.hpp"

namespace epccl::api {
namespace {

constexpr useconds_t shortest_nap = 20, longest_nap = 500;  // microseconds
constexpr double awake = 200e-6;                            // before the first of these
constexpr double check_period = 1e-3;

class MessageMoves {
 public:
  explicit MessageMoves(std::vector<Moving> open) : open_(std::move(open)) {
    for (const Moving& each : open_)
      each.communicator->waiter().begin(each.communicator->cluster().nodes() > 1);
  }

  void run() {
    while (!open_.empty()) {
      const bool moved = sweep();
      check_others();
      if (moved) {
        nap_ = shortest_nap;
        if (open_.size() > 1) moved_at_ = now_seconds();
      } else if (!open_.empty()) {
        Status& outcome = *open_.front().outcome;
        outcome = open_.size() > 1 ? wait_for_several() : wait_for_one();
        drop_failed();
      }
    }
  }

 private:
  /// Whether anything moved. What is through is open no more.
  bool sweep() {
    bool moved = false;
    for (const Moving& each : open_) {
      const auto one = each.communicator->p2p().progress();
      *each.outcome = one.status();
      if (!one.ok() || !*one) continue;
      each.communicator->waiter().moved();
      moved = true;
    }
    drop_failed();
    std::erase_if(open_, [](const Moving& each) { return each.communicator->p2p().done(); });
    return moved;
  }

  // To end one may take a while, in which it was this thread that was silent, and none of the others' ranks.
  void drop_failed() {
    const size_t dropped = std::erase_if(open_, [](const Moving& each) {
      if (each.outcome->ok()) return false;
      end_failed(each);
      return true;
    });
    if (dropped == 0) return;
    for (const Moving& each : open_) each.communicator->waiter().moved();
  }

  static auto situation(runtime::Communicator& communicator) {
    return [&p2p = communicator.p2p()] {
      return runtime::Waiter::Situation{0, "send/recv group", p2p.waiting_text(), p2p.waited_for()};
    };
  }

  // A wait hears only of the first one's failures, and only its time runs.
  void check_others() {
    if (open_.size() == 1 || now_seconds() < next_check_) return;
    next_check_ = now_seconds() + check_period;
    for (const Moving& each : open_) {
      runtime::Communicator& communicator = *each.communicator;
      *each.outcome = communicator.check();
      if (each.outcome->ok())
        *each.outcome = communicator.waiter().look(situation(communicator), runtime::Waiter::For::others);
    }
    drop_failed();
  }

  // Nobody can sleep on several communicators' bells at once, and a bell of the others would go unheard. At first it only yields.
  Status wait_for_several() {
    if (now_seconds() - moved_at_ > awake) {
      usleep(nap_);
      nap_ = std::min(2 * nap_, longest_nap);
    }
    runtime::Communicator& first = *open_.front().communicator;
    return first.waiter().nap(situation(first), runtime::Waiter::For::others);
  }

  Status wait_for_one() {
    runtime::Communicator& only = *open_.front().communicator;
    Status& outcome = *open_.front().outcome;
    const auto what = situation(only);
    if (only.p2p().copies_pending()) return only.waiter().nap(what);
    const auto again = [&] { return sweep() || open_.empty(); };
    Status waited =
        only.waiter().idle([] { return transports::SleepFor{}; }, only.p2p().network_pending(), again, what);
    return open_.empty() ? std::move(outcome) : waited;  // what is over is so, whatever is heard behind
  }

  std::vector<Moving> open_;
  double next_check_ = 0;
  useconds_t nap_ = shortest_nap;
  double moved_at_ = now_seconds();
};

}  // namespace

void end_failed(const Moving& failed) {
  runtime::Communicator& communicator = *failed.communicator;
  *failed.outcome = with_or_without_text([&] { return communicator.tell(std::move(*failed.outcome)); });
  go_through([&] { communicator.p2p().give_up(communicator.waiter().peers_timeout()); });
  *failed.outcome = communicator.fail(std::move(*failed.outcome));
  communicator.work_is_over();
}

void move_messages(std::vector<Moving> open) {
  MessageMoves(std::move(open)).run();
}

Status run_messages(runtime::Communicator& communicator,
                    const std::vector<runtime::P2pOperation>& operations) {
  Status outcome;
  const Moving moving{&communicator, &outcome};
  Status begun = caught([&]() -> Status {
    EPCCL_TRY(communicator.p2p().start(operations));
    move_messages({moving});
    return {};
  });
  if (begun.ok()) return outcome;
  outcome = std::move(begun);
  end_failed(moving);
  return outcome;
}

}  // namespace epccl::api
