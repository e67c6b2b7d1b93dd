// How a part of a group ended, told by the thread that runs it to those who wait for it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "base/status.hpp"

namespace epccl::api {

/// What a Teller tells. Any thread may wait, and any number of times.
class Outcome {
 public:
  Outcome() = default;

  /// Whether there is a Teller to wait for.
  bool valid() const { return state_ != nullptr; }
  void wait() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->is_told; });
  }
  Status get() const {
    wait();
    return state_->status;
  }

 private:
  friend class Teller;
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_told = false;
    Status status = Status(Code::system_error, "this part of the group was given up before it had begun");
  };
  explicit Outcome(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

/// Tells once. What is destroyed before that has given up its part, which its Outcome says. Promises do so, too, but allocate then: where memory
/// is short, those who wait shall go on.
class Teller {
 public:
  Teller() : state_(std::make_shared<Outcome::State>()) {}
  Teller(Teller&&) noexcept = default;
  Teller& operator=(Teller&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Teller() { give_up(); }

  Outcome outcome() const { return Outcome(state_); }
  void tell(Status status) noexcept {
    {
      const std::lock_guard lock(state_->mutex);
      state_->status = std::move(status);
    }
    give_up();
  }
  /// Nothing where it has told, or was moved away.
  void give_up() noexcept {
    if (state_ == nullptr) return;
    const std::shared_ptr<Outcome::State> state = std::move(state_);
    const std::lock_guard lock(state->mutex);
    state->is_told = true;
    state->changed.notify_all();
  }

 private:
  std::shared_ptr<Outcome::State> state_;
};

}  // namespace epccl::api
