#include "runtime/executor/queue_executor.hpp"

#include <unistd.h>

#include <algorithm>

#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {

using plan::Kind;
using plan::Lane;
using transports::done_counter;

QueueExecutor::QueueExecutor(device::Device& device, const topology::Cluster& cluster, int rank,
                             transports::NodeMemory& node, FailureMonitor& monitor, const Limits& limits)
    : device_(device),
      cluster_(cluster),
      rank_(rank),
      node_(node),
      monitor_(monitor),
      feed_(device, cluster, limits) {}

QueueExecutor::~QueueExecutor() {
  stop();
}

void QueueExecutor::stop() {
  if (control_ == nullptr) return;
  if (node_.done(node_.local()) < sequence_) give_up();
  kept_ = {};
  control_.reset();
  hide_words(device_, node_);
}

// The node's counters are what queues signal with.
Status QueueExecutor::prepare() {
  if (control_ != nullptr) return {};
  EPCCL_TRY(show_words(device_, node_));
  EPCCL_ASSIGN(control_, device_.make_queue(device::QueueKind::copy_engine));
  return {};
}

// Made when first needed, then kept.
Status QueueExecutor::make_queues(const QueueProgram& program) {
  EPCCL_TRY(prepare());
  std::array<size_t, plan::lanes> used{};
  queues_.clear();
  for (const Lane lane : program.queues) {
    auto& of_lane = kept_[static_cast<size_t>(lane)];
    const size_t number = used[static_cast<size_t>(lane)]++;
    if (number == of_lane.size()) {
      EPCCL_ASSIGN(auto made, device_.make_queue(kind_of(lane)));
      of_lane.push_back(std::move(made));
    }
    queues_.push_back(of_lane[number].get());
  }
  return {};
}

Result<device::QueueEvent*> QueueExecutor::event(size_t index) {
  while (events_.size() <= index) {
    EPCCL_ASSIGN(auto made, device_.make_event());
    events_.push_back(std::move(made));
  }
  used_events_ = std::max(used_events_, index + 1);
  return events_[index].get();
}

Status QueueExecutor::submit(const QueueProgram& program, const QueueCall& call, device::Queue* stream) {
  EPCCL_TRY(monitor_.check());
  EPCCL_TRY(make_queues(program));
  program_ = &program;
  sequence_ = call.sequence;
  text_ = call.text;
  used_events_ = 0;
  Status status = submit_all(program, call, stream);
  if (!status.ok()) give_up();
  return status;
}

Status QueueExecutor::submit_all(const QueueProgram& program, const QueueCall& call, device::Queue* stream) {
  device::Queue& control = stream != nullptr ? *stream : *control_;
  EPCCL_TRY(begin(call, control, stream != nullptr));
  EPCCL_TRY(submit_operations(program, call));
  return end(program, call, control);
}

// Scratch of this call was last used two calls ago.
Status QueueExecutor::begin(const QueueCall& call, device::Queue& control, bool joins_stream) {
  bool waits = joins_stream;
  for (int local = 0; local < node_.local_size() && call.sequence > 2; ++local) {
    if (local == node_.local() || node_.done(local) >= call.sequence - 2) continue;
    EPCCL_TRY(control.wait(word(local, done_counter), call.sequence - 2));
    waits = true;
  }
  if (!waits) return {};
  EPCCL_ASSIGN(device::QueueEvent * begun, event(0));
  EPCCL_TRY(control.record(*begun));
  for (device::Queue* queue : queues_) EPCCL_TRY(queue->wait(*begun));
  return {};
}

// Events of the program come behind the one of begin().
Status QueueExecutor::submit_operations(const QueueProgram& program, const QueueCall& call) {
  using Operation = QueueOperation::Kind;
  feed_.begin(program, call, queues_);
  for (const QueueOperation& operation : program.operations) {
    const uint32_t queue = operation.queue;
    const bool is_step = operation.kind == Operation::step;
    const plan::Step* step = nullptr;
    if (is_step || operation.kind == Operation::wait) step = &program.steps[operation.index];
    if (is_step && step->kind == Kind::copy) {
      EPCCL_TRY(feed_.copy(queue, *step));
      continue;
    }
    EPCCL_TRY(feed_.flush(queue));
    if (operation.kind == Operation::record) {
      EPCCL_ASSIGN(device::QueueEvent * recorded, event(1 + operation.index));
      EPCCL_TRY(queues_[queue]->record(*recorded));
    } else if (operation.kind == Operation::join) {
      EPCCL_ASSIGN(const device::QueueEvent* joined, event(1 + operation.index));
      EPCCL_TRY(queues_[queue]->wait(*joined));
    } else if (operation.kind == Operation::wait) {
      EPCCL_TRY(queues_[queue]->wait(word(local_of(step->peer), step->slot),
                                     counter_value(call.sequence, step->value)));
    } else if (step->kind == Kind::post) {
      EPCCL_TRY(
          queues_[queue]->post(word(node_.local(), step->slot), counter_value(call.sequence, step->value)));
    } else {
      EPCCL_TRY(feed_.reduce(queue, *step));
    }
  }
  return feed_.flush_all();
}

Status QueueExecutor::end(const QueueProgram& program, const QueueCall& call, device::Queue& control) {
  for (size_t queue = 0; queue < queues_.size(); ++queue) {
    EPCCL_ASSIGN(device::QueueEvent * over, event(1 + program.events + queue));
    EPCCL_TRY(queues_[queue]->record(*over));
    EPCCL_TRY(control.wait(*over));
  }
  for (const uint32_t index : program.last_waits) {
    const plan::Step& step = program.steps[index];
    EPCCL_TRY(control.wait(word(local_of(step.peer), step.slot), counter_value(call.sequence, step.value)));
  }
  return control.post(word(node_.local(), done_counter), call.sequence);
}

Status QueueExecutor::finish(Waiter& waiter) {
  const auto over = [this] { return node_.done(node_.local()) >= sequence_; };
  transports::SleepFor reason{done_counter, sequence_, {}};
  reason.add(node_.local());
  const bool wakes = device_.kind() == device::DeviceKind::host;  // a GPU's posts wake nobody
  size_t passed = 0;
  waiter.moved();
  while (!over()) {
    for (; passed < used_events_; ++passed) {
      // What is wrong with an event is found again at the end, in its queue.
      const auto complete = events_[passed]->complete();
      if (!complete.ok() || !*complete) break;
      waiter.moved();
    }
    Status status = wakes ? waiter.idle([&] { return reason; }, false, [&] { return over(); },
                                        [this] { return describe(); })
                          : waiter.nap([this] { return describe(); });
    // What went wrong on the device ends its queues without another word.
    if (status.ok() && !wakes) status = control_->idle().take_status();
    if (status.ok()) continue;
    give_up();
    return status;
  }
  if (!wakes) node_.posted(done_counter);
  Status status = failure();
  // Then it is not this rank's queues that say that they are through: some may still move.
  if (status.ok() && node_.done(node_.local()) >= device::released)
    status = Status(Code::remote_error, "a rank of this node gave up");
  if (!status.ok()) give_up();
  return status;
}

Status QueueExecutor::failure() const {
  for (const auto& of_lane : kept_)
    for (const auto& queue : of_lane) EPCCL_TRY(queue->failure());
  return control_ != nullptr ? control_->failure() : Status{};
}

// Others may still store lower values: until everything is through, words are raised again and again.
void QueueExecutor::give_up() {
  if (control_ == nullptr) return;
  const auto idle = [](device::Queue& queue) {
    const auto result = queue.idle();
    return !result.ok() || *result;
  };
  const auto all_idle = [&] {
    for (const auto& of_lane : kept_)
      for (const auto& queue : of_lane)
        if (!idle(*queue)) return false;
    return idle(*control_);
  };
  do {
    for (device::SignalWord& each : node_.segment().counters())
      if (each.load(std::memory_order_relaxed) < device::released)
        each.store(device::released, std::memory_order_release);
    usleep(200);
  } while (!all_idle());
  for (int slot = 0; slot < transports::node_counters; ++slot) node_.posted(slot);
}

Waiter::Situation QueueExecutor::describe() const {
  std::string waiting = "its copy engines";
  for (const plan::Step& step : program_->steps) {
    if (step.kind != Kind::wait) continue;
    if (node_.counter(local_of(step.peer), step.slot) >= counter_value(sequence_, step.value)) continue;
    waiting =
        fmt::format("rank {} (same node): its counter {} to reach {}", step.peer, step.slot, step.value);
    break;
  }
  return {sequence_, text_, waiting};
}

}  // namespace epccl::runtime
