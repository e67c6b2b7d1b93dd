#include "runtime/queues/queue_executor.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {

using plan::Kind;
using plan::Lane;
using transports::done_counter;
using transports::stream_counter;

namespace {

// Most programs have fewer.
constexpr size_t events_at_first = 64;
// By then queues that are let through have run out, if nothing stands before them.
constexpr double run_out_seconds = 1;
constexpr double let_go_period = 0.05;  // to look for streams that wait takes a lock of the process

}  // namespace

QueueExecutor::QueueExecutor(device::Device& device, const topology::Cluster& cluster,
                             transports::NodeMemory& node, FailureMonitor& monitor, const Limits& limits,
                             LetGo let_go)
    : device_(device),
      cluster_(cluster),
      node_(node),
      monitor_(monitor),
      let_go_(std::move(let_go)),
      words_(node, device),
      feed_(device, cluster, limits),
      lanes_(device) {}

QueueExecutor::~QueueExecutor() {
  stop();
}

void QueueExecutor::stop() {
  if (control_ == nullptr) return;
  if (node_.done(node_.local()) < last_sequence_)
    give_up({Code::invalid_usage, "the communicator ends while the call is under way"});
  lanes_.clear();
  control_.reset();
  hide_words(device_, node_);
}

// The node's counters are what queues signal with.
Status QueueExecutor::prepare(int width) {
  if (control_ != nullptr) return {};
  EPCCL_TRY(show_words(device_, node_));
  EPCCL_ASSIGN(control_, device_.make_queue(device::QueueKind::copy_engine));
  if (width == 0) return {};
  EPCCL_TRY(lanes_.prepare(width, plan::Signals::spread, false));
  return make_events(events_at_first);
}

Status QueueExecutor::make_queues(const QueueProgram& program) {
  EPCCL_TRY(prepare());
  std::array<size_t, plan::lanes> used{};
  queues_.clear();
  for (const Lane lane : program.queues) {
    EPCCL_ASSIGN(device::Queue * made, lanes_.get(lane, used[static_cast<size_t>(lane)]++, program.by_cores));
    queues_.push_back(made);
  }
  return {};
}

Status QueueExecutor::make_events(size_t count) {
  while (events_.size() < count) {
    EPCCL_ASSIGN(auto made, device_.make_event());
    events_.push_back(std::move(made));
  }
  return {};
}

Result<device::QueueEvent*> QueueExecutor::event(size_t index) {
  EPCCL_TRY(make_events(index + 1));
  now_->used_events = std::max(now_->used_events, index + 1);
  return events_[index].get();
}

/// What a call's submission needs.
struct QueueExecutor::Submission {
  const QueueProgram& program;
  const QueueCall& call;
  device::Queue& control;
  Waiter& waiter;
};

Status QueueExecutor::submit(const QueueProgram& program, const QueueCall& call, Waiter& waiter) {
  now_.emplace(Submitted{program, call});
  Status status = caught([&] { return try_submit(program, call, waiter); });
  if (status.ok()) return {};
  status = monitor_.tell(std::move(status));
  give_up(status);
  return status;
}

// Peers have its buffers already, whatever is wrong here.
Status QueueExecutor::try_submit(const QueueProgram& program, const QueueCall& call, Waiter& waiter) {
  last_sequence_ = call.sequence;
  peers_timeout_ = waiter.peers_timeout();
  waiter.moved();
  EPCCL_TRY(monitor_.check());
  EPCCL_TRY(make_queues(program));
  if (!node_.begin_use(call.sequence)) return node_.why_gave_up();
  const Submission now{program, call, *control_, waiter};
  EPCCL_TRY(begin(now));
  feed_.begin(now.program, now.call, queues_);
  EPCCL_TRY(submit_in_turns(now));
  EPCCL_TRY(feed_.flush_all());
  return end(now);
}

Result<device::WordValue> QueueExecutor::wait_for(const Submission& now, int local, int slot,
                                                  uint64_t value) const {
  return words_.wait_for(local, slot, value, now.waiter, [this] { return describe(); });
}

Status QueueExecutor::begin(const Submission& now) {
  waits_.clear();
  EPCCL_TRY(await_scratch(now));
  EPCCL_TRY(await_streams(now));
  if (waits_.empty() && now.call.behind == nullptr) return {};
  if (!waits_.empty()) EPCCL_TRY(now.control.post_after(waits_, {}));
  EPCCL_ASSIGN(device::QueueEvent * begun, event(0));
  EPCCL_TRY(now.control.record(*begun));
  for (device::Queue* queue : queues_) EPCCL_TRY(queue->wait(*begun));
  return {};
}

// That of this call was last used two calls ago.
Status QueueExecutor::await_scratch(const Submission& now) {
  const uint64_t sequence = now.call.sequence;
  for (int local = 0; local < node_.local_size() && sequence > 2; ++local) {
    if (local == node_.local() || node_.done(local) >= sequence - 2) continue;
    EPCCL_ASSIGN(waits_.emplace_back(), wait_for(now, local, done_counter, sequence - 2));
  }
  return {};
}

// This rank's, which it tells its peers, and those of peers who tell it so.
Status QueueExecutor::await_streams(const Submission& now) {
  const QueueCall& call = now.call;
  const uint64_t here = call.sequence;
  if (call.behind != nullptr) {
    EPCCL_TRY(words_.post_after(now.control, {&call.behind->come, 1}, stream_counter, here, call.near));
  }
  for (const int rank : call.awaited) {
    EPCCL_ASSIGN(waits_.emplace_back(), wait_for(now, local_of(rank), stream_counter, here));
  }
  return {};
}

// Each queue's in their order, as far as they can follow; the verifier has proved that some queue of some rank always goes on.
Status QueueExecutor::submit_in_turns(const Submission& now) {
  turns_.submitted.assign(now.program.queues.size(), 0);
  turns_.recorded.assign(now.program.events, false);
  turns_.left = now.program.operations.size();
  while (turns_.left > 0) {
    EPCCL_ASSIGN(const bool moved, submit_some(now));
    if (!moved) {
      EPCCL_TRY(feed_.flush_all());
      EPCCL_TRY(now.waiter.nap([this] { return describe(); }, Waiter::For::others));
      continue;
    }
    now.waiter.moved();
  }
  return {};
}

// One of each queue: they are to begin together.
Result<bool> QueueExecutor::submit_some(const Submission& now) {
  using Operation = QueueOperation::Kind;
  const size_t before = turns_.left;
  for (size_t queue = 0; queue < turns_.submitted.size(); ++queue) {
    const std::vector<uint32_t>& of_queue = now.program.of_queue[queue];
    size_t& next = turns_.submitted[queue];
    if (next == of_queue.size()) continue;
    const QueueOperation& operation = now.program.operations[of_queue[next]];
    if (operation.kind == Operation::join && !turns_.recorded[operation.index]) continue;
    if (operation.kind == Operation::wait && !can_follow(now, operation)) continue;
    EPCCL_TRY(submit_one(now, operation));
    if (operation.kind == Operation::record) turns_.recorded[operation.index] = true;
    ++next;
    --turns_.left;
  }
  return turns_.left != before;
}

bool QueueExecutor::can_follow(const Submission& now, const QueueOperation& operation) const {
  const plan::Step& step = now.program.steps[operation.index];
  return words_.is_queued(local_of(step.peer), step.slot, counter_value(now.call.sequence, step.value));
}

// Events of the program come behind the one of begin().
Status QueueExecutor::submit_one(const Submission& now, const QueueOperation& operation) {
  using Operation = QueueOperation::Kind;
  device::Queue& queue = *queues_[operation.queue];
  const bool is_step = operation.kind == Operation::step;
  const plan::Step* step = nullptr;
  if (is_step || operation.kind == Operation::wait) step = &now.program.steps[operation.index];
  if (is_step && step->kind == Kind::copy) return feed_.copy(operation.queue, *step, operation.begins_list);
  EPCCL_TRY(feed_.flush(operation.queue));
  if (operation.kind == Operation::record || operation.kind == Operation::join) {
    EPCCL_ASSIGN(device::QueueEvent * place, event(1 + operation.index));
    return operation.kind == Operation::record ? queue.record(*place) : queue.wait(*place);
  }
  const uint64_t value = counter_value(now.call.sequence, step->value);
  if (operation.kind == Operation::wait)
    return queue.wait(words_.word(local_of(step->peer), step->slot), value);
  if (step->kind == Kind::post) return words_.post_after(queue, {}, step->slot, value, now.call.near);
  return feed_.reduce(operation.queue, *step, {step + 1, operation.also});
}

Status QueueExecutor::end(const Submission& now) {
  const uint64_t sequence = now.call.sequence;
  for (const uint16_t queue : now.program.ends) {
    EPCCL_ASSIGN(device::QueueEvent * over, event(1 + now.program.events + queue));
    EPCCL_TRY(queues_[queue]->record(*over));
    EPCCL_TRY(now.control.wait(*over));
  }
  waits_.clear();
  for (const uint32_t index : now.program.last_waits) {
    const plan::Step& step = now.program.steps[index];
    const int peer = local_of(step.peer);
    const uint64_t value = counter_value(sequence, step.value);
    EPCCL_ASSIGN(waits_.emplace_back(), wait_for(now, peer, step.slot, value));
    waits_.back().near = now.call.near.looked_at(peer, step.slot);
  }
  const QueuedBehind* const behind = now.call.behind;
  const device::WordPost done = words_.post_of(done_counter, sequence, now.call.near);
  EPCCL_TRY(now.control.post_after(waits_, last_posts(behind, done)));
  words_.tell(done_counter, sequence);
  if (behind == nullptr) return {};
  if (behind->end != nullptr) EPCCL_TRY(now.control.record(*behind->end));
  behind->queued({done.word, done.value});
  return {};
}

Status QueueExecutor::finish(Waiter& waiter) {
  Status status = caught([&] { return wait_until_over(waiter); });
  if (status.ok()) status = failure();
  // Then queues went on that nobody had posted for, and it may not be this rank's that say that they are through.
  if (status.ok() && node_.gave_up()) status = node_.why_gave_up();
  if (status.ok()) {
    node_.end_use();
    return {};
  }
  status = monitor_.tell(std::move(status));
  give_up(status);
  return status;
}

Status QueueExecutor::wait_until_over(Waiter& waiter) {
  const auto over = [&] { return node_.done(node_.local()) >= now_->call.sequence; };
  transports::SleepFor reason{done_counter, now_->call.sequence, {}};
  reason.add(node_.local());
  const bool wakes = device_.kind() == device::DeviceKind::host;  // a GPU's posts wake nobody
  size_t passed = 0;
  const double period = wakes ? 0 : driver_look_period;
  double next_look = now_seconds() + period;
  waiter.moved();
  while (!over()) {
    Status status;
    if (const double now = now_seconds(); now >= next_look) {
      next_look = now + period;
      status = look(passed, waiter);
      if (over()) break;  // the driver may have kept it for long
    }
    const auto describe_it = [this] { return describe(); };
    if (status.ok())
      status = wakes ? waiter.idle([&] { return reason; }, false, [&] { return over(); }, describe_it,
                                   Waiter::For::own_queues)
                     : waiter.nap(describe_it);
    if (!status.ok()) return status;
  }
  if (!wakes) node_.posted(done_counter);
  return {};
}

// What is wrong with an event is found again at the end, in its queue. What went wrong on a GPU ends its queues without another word.
Status QueueExecutor::look(size_t& passed, Waiter& waiter) {
  for (; passed < now_->used_events; ++passed) {
    const auto complete = events_[passed]->complete();
    if (!complete.ok() || !*complete) break;
    waiter.moved();
  }
  return device_.kind() == device::DeviceKind::host ? Status{} : control_->idle().take_status();
}

Status QueueExecutor::failure() const {
  for (const device::Queue* queue : lanes_.all()) EPCCL_TRY(queue->failure());
  return control_ != nullptr ? control_->failure() : Status{};
}

// Others may still store lower values: until everything is through, words are raised again and again. What holds a user's stream is no
// word of the node.
void QueueExecutor::give_up(const Status& why, uint64_t sequence, double seconds, device::Queue* another) {
  node_.say_why(why.message(), why.reason());
  node_.say_gave_up();  // before anything goes on that is not to
  if (now_ && now_->call.behind != nullptr) now_->call.behind->let_go();
  const auto idle = [](device::Queue& queue) {
    const auto result = queue.idle();
    return !result.ok() || *result;
  };
  const auto all_idle = [&] {
    for (device::Queue* queue : lanes_.all())
      if (!idle(*queue)) return false;
    return (control_ == nullptr || idle(*control_)) && (another == nullptr || idle(*another));
  };
  double next_let_go = now_seconds() + run_out_seconds;
  do {
    release_words(node_);
    if (const double now = now_seconds(); now >= next_let_go) {
      next_let_go = now + let_go_period;
      let_go_(why);
    }
    usleep(200);
  } while (!all_idle());
  for (int slot = 0; slot < transports::node_counters; ++slot) node_.posted(slot);
  end_use_with_peers(node_, sequence, seconds, [this] { release_words(node_); });
}

Waiter::Situation QueueExecutor::describe() const {
  const QueueCall& call = now_->call;
  std::string waiting = "its copy engines";
  for (const int rank : call.awaited)
    if (node_.counter(local_of(rank), stream_counter) < call.sequence)
      return {call.sequence, call.text, fmt::format("rank {} to come to this call in its stream", rank)};
  for (const plan::Step& step : now_->program.steps) {
    if (step.kind != Kind::wait || step.at_entry) continue;
    if (node_.counter(local_of(step.peer), step.slot) >= counter_value(call.sequence, step.value)) continue;
    waiting =
        fmt::format("rank {} (same node): its counter {} to reach {}", step.peer, step.slot, step.value);
    break;
  }
  return {call.sequence, call.text, waiting};
}

}  // namespace epccl::runtime
