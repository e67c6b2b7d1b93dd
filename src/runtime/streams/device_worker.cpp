#include "runtime/streams/device_worker.hpp"

#include <chrono>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace epccl::runtime {
namespace {

constexpr double call_check_period = 1e-3;
// The driver is asked so often where a word tells when the stream has come: for what the word does not tell, errors above all.
constexpr double event_look_period = 10e-3;

}  // namespace

DeviceWorker::DeviceWorker(device::Device& device, Owner owner)
    : device_(device),
      owner_(std::move(owner)),
      watched_(std::make_shared<HoldWatch::Worker>(owner_.watched)),
      first_calls_(std::make_shared<FirstCalls>(owner_.first_calls)) {}

Result<std::unique_ptr<DeviceWorker>> DeviceWorker::open(device::Device& device, Owner owner) {
  std::unique_ptr<DeviceWorker> worker(new DeviceWorker(device, std::move(owner)));  // private constructor
  EPCCL_TRY(worker->start());
  return worker;
}

Status DeviceWorker::start() {
  // So that there are words: memory is made visible when a call takes the first.
  EPCCL_TRY(StreamHold::make(device_).status());
  stream_ = std::make_unique<device::HostStream>();
  stream_->enqueue([this]() -> Status {
    id_ = std::this_thread::get_id();
    watched_->runs_here();
    return {};
  });
  return stream_->synchronize();
}

DeviceWorker::~DeviceWorker() {
  watched_->close();
  // The last one to hold a communicator may be the work that ran on it: a thread cannot wait for its own end.
  if (stream_ != nullptr && id_.load() == std::this_thread::get_id()) {
    device::HostStream::end_elsewhere(std::move(stream_));
  } else {
    stream_.reset();
  }
}

Result<std::shared_ptr<Turn>> DeviceWorker::plan_turn(void* stream, Holds holds) const {
  auto turn = std::make_shared<Turn>();
  turn->device_ = &device_;
  EPCCL_ASSIGN(turn->users_, device_.borrow_stream(stream));
  EPCCL_ASSIGN(turn->before_, device_.make_event());
  if (holds == Holds::nothing) return turn;
  EPCCL_ASSIGN(turn->hold_, StreamHold::make(device_));
  turn->is_on_null_stream_ = device_.is_null_stream(stream);
  turn->queues_behind_held_ = owner_.queues_behind_held;
  turn->share_with(*this);
  return turn;
}

Result<std::shared_ptr<Turn>> DeviceWorker::take_turn(void* stream, Holds holds) const {
  EPCCL_ASSIGN(std::shared_ptr<Turn> turn, plan_turn(stream, holds));
  EPCCL_TRY(turn->mark());
  EPCCL_TRY(turn->hold());
  return turn;
}

Status DeviceWorker::wait_for(const device::QueueEvent& event, bool checks, const StreamHold* behind) const {
  double next_check = now_seconds() + call_check_period, next_look = 0;
  for (int round = 0;; ++round) {
    if (behind != nullptr && behind->has_come()) return {};
    const bool is_told = behind != nullptr && behind->has_begun();
    if (const double now = now_seconds(); !is_told || now >= next_look) {
      next_look = now + event_look_period;
      EPCCL_ASSIGN(const bool is_complete, event.complete());
      if (is_complete) return {};
    }
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    if (const double now = now_seconds(); checks && now >= next_check) {
      next_check = now + call_check_period;
      EPCCL_TRY(owner_.check());
    }
  }
}

Status DeviceWorker::begun(const Turn& turn, bool inside) const {
  if (turn.before_ == nullptr) return {};
  EPCCL_ASSIGN(const bool is_complete, turn.before_->complete());
  if (is_complete) return {};
  const bool gives_way = owner_.give_way();
  Status status = wait_for(*turn.before_, inside, turn.hold_.get());
  if (!gives_way) return status;
  Status failure = owner_.take_back();
  return status.ok() ? failure : status;
}

}  // namespace epccl::runtime
