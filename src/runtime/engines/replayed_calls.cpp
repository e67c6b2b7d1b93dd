#include "runtime/engines/replayed_calls.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "device/held_streams.hpp"

namespace epccl::runtime {
namespace {

using std::chrono::microseconds;

// Graphs come in rows, step by step of a model: soon after a call the thread looks often. A thread that only yields would take a
// core from the program.
constexpr double awake_seconds = 100e-6, alert_seconds = 0.2;
constexpr microseconds alert_period{50}, rare_period{1000};

uint64_t value_of(uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

}  // namespace

ReplayedCalls::ReplayedCalls(CapturedCalls& captured, Owner owner)
    : captured_(captured),
      room_(captured.room()),
      owner_(std::move(owner)),
      watched_(std::make_shared<HoldWatch::Worker>(owner_.watched)) {}

ReplayedCalls::~ReplayedCalls() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  watched_->close();
  room_->give_up();
}

ReplayedCalls::CallPtr ReplayedCalls::make(std::string text, std::function<Status()> work) {
  // Memory that calls of graphs had borrowed which are gone.
  room_->device().let_go();
  const std::lock_guard lock(mutex_);
  std::erase_if(calls_, [](const auto& it) { return it.second.expired(); });
  auto call = std::make_shared<const ReplayedCall>(
      ReplayedCall{next_number_++, std::move(text), std::move(work), room_, room_->count_host_call()});
  calls_[call->number] = call;
  if (!thread_.joinable()) thread_ = start_thread([this] { watch(); });
  changed_.notify_all();
  return call;
}

Status ReplayedCalls::add(std::string text, std::function<Status()> work, device::Queue& stream) {
  const CallPtr call = make(std::move(text), std::move(work));
  return captured_.add(call->number, GraphWriter::Half::both, call, stream);
}

Result<std::shared_ptr<const ReplayedCall>> ReplayedCalls::begin(std::string text,
                                                                 std::function<Status()> work,
                                                                 device::Queue& stream) {
  CallPtr call = make(std::move(text), std::move(work));
  EPCCL_TRY(captured_.add(call->number, GraphWriter::Half::says, call, stream));
  return call;
}

Status ReplayedCalls::end(std::shared_ptr<const ReplayedCall> call, device::Queue& stream) {
  const uint64_t number = call->number;
  return captured_.add(number, GraphWriter::Half::waits, std::move(call), stream);
}

bool ReplayedCalls::any_left() {
  return std::ranges::any_of(calls_, [](const auto& it) { return !it.second.expired(); });
}

ReplayedCalls::CallPtr ReplayedCalls::find(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto known = calls_.find(number);
  return known == calls_.end() ? nullptr : known->second.lock();
}

// False: it ends.
bool ReplayedCalls::rest(double idle_seconds) {
  if (idle_seconds < awake_seconds) {
    std::this_thread::yield();
    const std::lock_guard lock(mutex_);
    return !is_ending_;
  }
  std::unique_lock lock(mutex_);
  if (idle_seconds < alert_seconds) {
    changed_.wait_for(lock, alert_period, [this] { return is_ending_; });
  } else if (any_left()) {
    changed_.wait_for(lock, rare_period, [this] { return is_ending_; });
  } else {
    changed_.wait(lock, [this] { return is_ending_ || any_left(); });
  }
  return !is_ending_;
}

void ReplayedCalls::watch() {
  watched_->runs_here();
  device::kernels::HostCallReport& report = room_->host_calls();
  double since = now_seconds() - alert_seconds;
  while (rest(now_seconds() - since)) {
    const uint64_t come = value_of(report.come);
    const bool met = value_of(report.met) != 0;
    if (come == made_ && !met) continue;
    if (Status status = met ? met_another() : serve(come); !status.ok()) {
      owner_.failed(status);  // before the stream goes on
      // From now on nothing waits for this thread.
      room_->give_up();
      device::HeldStreams::retry_beside();
      return;
    }
    made_ = come;
    std::atomic_ref(report.over).store(come, std::memory_order_release);
    device::HeldStreams::retry_beside();  // what the end of the call's hold has found to be put off still
    since = now_seconds();
  }
}

Status ReplayedCalls::met_another() const {
  return error(Code::invalid_usage,
               "rank {}: graphs that hold calls of one communicator ran at the same time", owner_.rank);
}

Status ReplayedCalls::serve(uint64_t come) {
  if (come != made_ + 1) return met_another();
  const CallPtr call = find(value_of(room_->host_calls().call));
  if (call == nullptr)
    return error(Code::internal_error, "rank {}: a replay has come to captured call {}, which is gone",
                 owner_.rank, value_of(room_->host_calls().call));
  const device::HeldStreams::Hold held(device::HeldStreams::Hold::Begins::at_once);
  const HoldWatch::Ticket ticket({{watched_}, [] { return true; }, [this] { room_->give_up(); }});
  return owner_.run(call->work);
}

}  // namespace epccl::runtime
