#include "runtime/executor/executor.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/caught.hpp"
#include "device/device.hpp"
#include "device/host/host_copy.hpp"
#include "runtime/executor/message_key.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {

using plan::Buffer;
using plan::Kind;
using transports::Completion;

namespace {

constexpr uint64_t large_step = 32 << 10;

static_assert(plan::max_slots <= transports::stream_counter);

}  // namespace

Executor::Executor(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
                   transports::MessageTransport* network, FailureMonitor& monitor, const WaitPolicy& policy,
                   const CopyPolicy& copies)
    : cluster_(cluster),
      rank_(rank),
      node_(node),
      network_(network),
      monitor_(monitor),
      waiter_(rank, node, network, monitor, policy),
      calls_(cluster, rank, node, waiter_),
      row_steps_(rank, node),
      reduce_steps_(rank, node),
      engine_(device::host_device(), node),
      staged_input_(rank, node, copies),
      take_turns_(policy.share_cores && cluster.nodes() > 1),
      copy_policy_(copies),
      waits_(node.local_size()) {}

Status Executor::run(const CompiledPlan& plan, const Call& call) {
  plan_ = &plan;
  call_ = &call;
  EPCCL_TRY(monitor_.check_lightly());
  if (call.progress != nullptr) call.progress->begin(plan);
  EPCCL_TRY(begin());
  // What is thrown is a failure as any other: what the engines still copy is waited for before the caller has its buffers back.
  Status made = caught([this] {
    make();
    return Status();
  });
  if (!made.ok()) fail(std::move(made));
  end();
  return std::move(failure_);
}

void Executor::make() {
  if (uses_peers_buffers() && !node_.begin_use(call_->sequence)) fail(node_.why_gave_up());
  while ((!steps_.all_complete() || !drained_) && failure_.ok()) {
    if (idle_visits_ % 4 == 0 ? sweep() : glance()) {
      waiter_.moved();
      idle_visits_ = 0;
      continue;
    }
    ++idle_visits_;
    if ((steps_.all_complete() && drained_) || !failure_.ok()) break;
    Status idle = waiter_.idle([this] { return reasons_to_sleep(); }, network_busy(),
                               [this] { return sweep(); }, [this] { return stalled(); });
    if (!idle.ok()) fail(std::move(idle));
  }
}

// Small calls are staged: nobody has a buffer of another rank's then.
bool Executor::uses_peers_buffers() const {
  return !call_->is_small && node_.local_size() > 1;
}

// Ranks that come to the call later find out before they use a buffer that this one has given up.
void Executor::end() {
  const bool is_well = failure_.ok();
  if (is_well) {
    node_.set_done(call_->sequence);
    staged_input_.call_over();
  } else {
    engine_.drain();
  }
  if (uses_peers_buffers()) node_.end_use();
  if (is_well) return;
  failure_ = monitor_.tell(std::move(failure_));
  node_.say_gave_up();
}

void Executor::wait_for_peers() {
  constexpr double longest_copy = 2.0;  // seconds
  end_use_with_peers(node_, last_sequence_, std::min(waiter_.peers_timeout(), longest_copy));
}

Status Executor::begin() {
  failure_ = {};
  waiter_.begin(plan_->uses_network, call_->behind);
  idle_visits_ = 0;
  steps_.begin(*plan_);
  waits_.begin();
  if (!messages_.empty()) messages_.clear();
  finished_.clear();
  pending_messages_ = 0;
  drained_ = true;
  engine_.begin(call_->sequence);
  streaming_ = copy_policy_.streams(plan_->input_bytes, plan_->output_bytes);
  if (call_->rows != nullptr) {
    row_steps_.begin(call_->sequence, *plan_, *call_->rows);
    // Others write it, too, and this rank theirs.
    row_writes_ = row_writes(call_->rows->input.bytes[0], call_->rows->output.bytes[0]);
  }
  if (call_->reduction != nullptr)
    reduce_steps_.begin(scratch(), *plan_, {call_->input, call_->output}, *call_->reduction);
  EPCCL_TRY(calls_.begin(*call_, plan_->input_bytes, plan_->output_bytes));
  if (const auto staged = staged_input_.stage(*plan_, *call_))
    node_.my_call(call_->sequence).inputs[0] = *staged;
  return {};
}

RowSteps::Writes Executor::row_writes(uint64_t input_bytes, uint64_t output_bytes) const {
  if (copy_policy_.streams(input_bytes, output_bytes)) return RowSteps::Writes::streaming;
  return output_bytes >= copy_policy_.streaming_bytes ? RowSteps::Writes::shared : RowSteps::Writes::cached;
}

// Everything that can move now, moved once.
bool Executor::sweep() {
  bool moved = run_ready();
  if (!failure_.ok()) return true;
  moved |= poll_waits();
  if (engine_.pending()) moved |= poll_engine();
  if (network_busy()) moved |= poll_messages();
  return moved;
}

// Where ranks outnumber cores, most visits to a waiting rank find nothing: they should cost next to nothing. One wait
// stands for all of them; sweep() looks at the others now and then, since that one may depend on them.
bool Executor::glance() {
  if (!waits_.empty() && satisfied(waits_.front())) return sweep();
  if (engine_.ready()) return sweep();
  return network_busy() && poll_messages();
}

bool Executor::run_ready() {
  const auto start_one = [this](uint32_t index) {
    start(index);
    // Ranks that share a core take turns by large steps, not by time slices: what one has to send goes on the wire while
    // another copies.
    if (take_turns_ && plan_->steps[index].step.total_bytes() >= large_step) sched_yield();
  };
  return steps_.start_all(start_one, [this] { return failure_.ok(); });
}

void Executor::start(uint32_t index) {
  const CompiledStep& step = plan_->steps[index];
  if (step.step.rows == 0) return complete(index);
  switch (step.step.kind) {
    case Kind::copy:
      return start_copy(index);
    case Kind::move_rows:
    case Kind::reduce_rows:
      return start_rows(index);
    case Kind::reduce:
      return start_reduce(index);
    case Kind::send:
    case Kind::recv:
      return start_message(index);
    case Kind::post:
      node_.post(step.step.slot, counter_value(call_->sequence, step.step.value));
      return complete(index);
    case Kind::wait:
      if (satisfied(step.peer_local, step.step.slot, step.step.value)) return complete(index);
      return waits_.add(index, step);
  }
}

void Executor::complete(uint32_t index) {
  steps_.completed();
  const CompiledStep& step = plan_->steps[index];
  if (call_->progress != nullptr) call_->progress->completed(step.step);
  for (uint32_t s = step.first_successor; s < step.last_successor; ++s) steps_.release(plan_->successors[s]);
}

bool Executor::satisfied(int local, int slot, uint32_t value) {
  const uint64_t reached = node_.counter(local, slot);
  if (reached < counter_value(call_->sequence, value)) return false;
  if (reached >= device::released)
    fail(node_.why_gave_up());
  else if (calls_.agrees(local))
    return true;
  else if (Status status = calls_.check(local); !status.ok())
    fail(std::move(status));
  return true;
}

std::byte* Executor::address_of(int local, const plan::Location& location) const {
  if (location.buffer == Buffer::scratch) return node_.scratch(local, scratch()) + location.offset;
  if (location.buffer == Buffer::output) return static_cast<std::byte*>(call_->output) + location.offset;
  // Input is only read: the plan's verifier holds builders to that.
  return static_cast<std::byte*>(const_cast<void*>(call_->input)) + location.offset;
}

void Executor::start_copy(uint32_t index) {
  const CompiledStep& compiled = plan_->steps[index];
  const plan::Step& step = compiled.step;
  const bool reads_peer = step.source.rank != rank_ && step.source.buffer != Buffer::scratch;
  const bool writes_peer = step.destination.rank != rank_ && step.destination.buffer != Buffer::scratch;
  const bool streaming = streaming_ && step.destination.buffer == Buffer::output;
  std::byte* source = reads_peer ? nullptr : address_of(compiled.source_local, step.source);
  std::byte* destination = writes_peer ? nullptr : address_of(compiled.destination_local, step.destination);
  if (reads_peer || writes_peer) {
    const int peer = reads_peer ? compiled.source_local : compiled.destination_local;
    const auto& record = node_.call(peer, call_->sequence);
    const transports::BufferRef& theirs = reads_peer ? record.inputs[0] : record.outputs[0];
    auto mapped = node_.address_of(peer, theirs);
    if (!mapped.ok()) return fail_at_peer(std::move(mapped).take_status());
    if (*mapped == nullptr) return copy_unmapped(index, peer, theirs, reads_peer ? destination : source);
    (reads_peer ? source : destination) = *mapped + (reads_peer ? step.source : step.destination).offset;
  }
  // In place, a block may be where it belongs.
  if (source != destination && offloads(step)) {
    const device::CopyWork work{destination,       source, step.bytes, step.rows, step.destination_stride,
                                step.source_stride};
    return offload(index, {&work, 1});
  }
  if (source != destination && step.rows == 1 && step.destination.buffer == Buffer::scratch)
    staging_.copy(destination, source, step.bytes);
  else if (source != destination)
    device::copy_rows(destination, step.destination_stride, source, step.source_stride, step.bytes, step.rows,
                      streaming);
  complete(index);
}

bool Executor::offloads(const plan::Step& step) const {
  return call_->offload && step.total_bytes() >= CopyOffload::least_bytes;
}

void Executor::offload(uint32_t index, std::span<const device::CopyWork> copies) {
  if (Status status = engine_.start(index, copies); !status.ok()) fail(std::move(status));
}

bool Executor::poll_engine() {
  if (node_.counter(node_.local(), transports::meeting_counter) >= device::released) {
    fail(node_.why_gave_up());
    return true;
  }
  bool moved = false;
  for (auto step = engine_.done(); step; step = engine_.done()) {
    complete(*step);
    moved = true;
  }
  return moved;
}

void Executor::copy_unmapped(uint32_t index, int peer, const transports::BufferRef& theirs, std::byte* mine) {
  const plan::Step& step = plan_->steps[index].step;
  const bool reads = step.source.rank != rank_;
  for (uint32_t row = 0; row < step.rows; ++row) {
    Status status = reads ? node_.read(peer, theirs, step.source.offset + row * step.source_stride,
                                       mine + row * step.destination_stride, step.bytes)
                          : node_.write(peer, theirs, step.destination.offset + row * step.destination_stride,
                                        mine + row * step.source_stride, step.bytes);
    if (!status.ok()) return fail_at_peer(std::move(status));
  }
  complete(index);
}

void Executor::start_rows(uint32_t index) {
  const CompiledStep& step = plan_->steps[index];
  if (call_->rows == nullptr)
    return fail(Status(Code::internal_error, "a plan moves token rows in a call that has none"));
  if (step.step.unless_fetched && node_.call(step.destination_local, call_->sequence).fetches != 0)
    return complete(index);
  if (step.step.kind == Kind::move_rows && offloads(step.step)) {
    auto found = row_steps_.find_copies(step, copies_);
    if (!found.ok()) return fail_at_peer(std::move(found).take_status());
    if (*found) return offload(index, copies_);
  }
  Status status =
      step.step.kind == Kind::move_rows
          ? row_steps_.move(
                step, step.step.destination.buffer == Buffer::output ? row_writes_ : RowSteps::Writes::cached)
          : row_steps_.reduce(step.step);
  if (!status.ok()) return fail_at_peer(std::move(status));
  complete(index);
}

void Executor::start_reduce(uint32_t index) {
  if (call_->reduction == nullptr)
    return fail(Status(Code::internal_error, "a plan reduces in a call that does not say how"));
  Status status = reduce_steps_.run(plan_->steps[index].step);
  if (!status.ok()) return fail_at_peer(std::move(status));
  complete(index);
}

void Executor::start_message(uint32_t index) {
  const CompiledStep& compiled = plan_->steps[index];
  const plan::Step& step = compiled.step;
  if (network_ == nullptr)
    return fail(Status(Code::internal_error, "a plan uses the network of a one-node communicator"));
  Message& message = messages_.emplace_back(index);
  const auto key = message_key(call_->sequence, call_->meaning, step.tag);
  Status status =
      step.kind == Kind::send
          ? network_->send(step.peer, key, address_of(compiled.source_local, step.source), step.total_bytes(),
                           message)
          : network_->recv(step.peer, key, address_of(compiled.destination_local, step.destination),
                           step.total_bytes(), message);
  if (!status.ok())
    return fail_message(message.found ? found_another_call(step.peer, *message.found) : std::move(status));
  drained_ = drained_ && step.kind == Kind::recv;
  if (step.kind == Kind::send && message.state == Completion::State::done) {
    messages_.pop_back();
    return complete(index);
  }
  message.tell(finished_);
  ++pending_messages_;
}

bool Executor::poll_waits() {
  return waits_.poll([this](const PendingWaits::Wait& wait) { return satisfied(wait); },
                     [this](uint32_t index) { complete(index); });
}

bool Executor::poll_messages() {
  bool moved = network_->progress();
  while (const Completion* const finished = finished_.take()) {
    if (!finish_message(static_cast<const Message&>(*finished))) return true;
    moved = true;
  }
  if (pending_messages_ == 0) messages_.clear();
  if (!drained_) moved |= drained_ = network_->drained();
  if (drained_ && call_->progress != nullptr) call_->progress->drained();
  return moved;
}

bool Executor::finish_message(const Message& message) {
  const plan::Step& step = plan_->steps[message.step].step;
  if (message.state == Completion::State::failed) {
    fail_message(message.found ? found_another_call(step.peer, *message.found) : message.status);
    return false;
  }
  if (step.kind == Kind::recv && message.bytes != step.total_bytes()) {
    fail_message(error(Code::invalid_usage, "call {} ({}): rank {} sent {} bytes where rank {} expects {}",
                       call_->sequence, call_->text, step.peer, message.bytes, rank_, step.total_bytes()));
    return false;
  }
  --pending_messages_;
  complete(message.step);
  return true;
}

Status Executor::found_another_call(int peer, transports::MessageKey found) const {
  const uint64_t other = call_of(found, call_->sequence);
  const char* const why =
      other < call_->sequence   ? "which this rank did not receive there: the two made different calls then"
      : other > call_->sequence ? "and none of those that this call needs: the two make different calls"
                                : "but none that this call expects: the two make different calls";
  return error(Code::invalid_usage, "call {} ({}): rank {} has sent rank {} a message of call {}, {}",
               call_->sequence, call_->text, peer, rank_, other, why);
}

void Executor::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

// A peer's memory that is gone is the echo of its end, which may have had a reason.
void Executor::fail_at_peer(Status status) {
  fail(monitor_.explain(std::move(status)));
}

void Executor::fail_message(Status status) {
  // The hub compares what the ranks say they call: it may know better what is wrong.
  monitor_.bootstrap().report_stall({call_->sequence, std::string(call_->text), status.message()});
  fail(monitor_.explain(std::move(status)));
}

transports::SleepReasons Executor::reasons_to_sleep() const {
  return engine_.pending() ? engine_.reason() : waits_.reasons(call_->sequence);
}

Waiter::Situation Executor::stalled() {
  if (Status other = calls_.compare_with_finished(); !other.ok()) fail(std::move(other));
  return describe();
}

Waiter::Situation Executor::describe() const {
  return {call_->sequence, std::string(call_->text), waiting_text()};
}

std::string Executor::waiting_text() const {
  if (!waits_.empty()) {
    const uint32_t index = waits_.front().step;
    const plan::Step& step = plan_->steps[index].step;
    return fmt::format("rank {} (same node): step {} wait for its counter {} to reach {}", step.peer, index,
                       step.slot, step.value);
  }
  if (engine_.pending()) return "its copy engine";
  for (const Message& message : messages_) {
    if (message.state != Completion::State::pending) continue;
    const plan::Step& step = plan_->steps[message.step].step;
    return fmt::format("rank {} (node {}): step {} {} of {} bytes over {}", step.peer,
                       cluster_.node_of(step.peer), message.step, to_string(step.kind), step.total_bytes(),
                       network_->name());
  }
  return drained_ ? "nothing: this is a defect" : "the network to take what was sent";
}

}  // namespace epccl::runtime
