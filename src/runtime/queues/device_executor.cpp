#include "runtime/queues/device_executor.hpp"

#include <algorithm>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {

using plan::Kind;

DeviceExecutor::DeviceExecutor(device::Device& device, const topology::Cluster& cluster, int rank,
                               transports::NodeMemory& node, transports::MessageTransport& network,
                               FailureMonitor& monitor, uint64_t stage_bytes)
    : device_(device),
      rank_(rank),
      node_(node),
      network_(network),
      monitor_(monitor),
      lanes_(device, cluster),
      messages_(device, network, stage_bytes, cluster.ranks()),
      waits_(node.local_size()) {}

Status DeviceExecutor::prepare(int width) {
  EPCCL_TRY(lanes_.prepare(width, false));
  EPCCL_TRY(lanes_.prepare_events());
  return messages_.prepare();
}

Status DeviceExecutor::run(const DeviceProgram& program, const QueueCall& call, Waiter& waiter) {
  program_ = &program;
  call_ = &call;
  failure_ = {};
  if (Status status = caught([&] { return drive(waiter); }); failure_.ok()) failure_ = std::move(status);
  if (failure_.ok()) {
    node_.end_use();
    node_.set_done(call.sequence);
  } else {
    failure_ = monitor_.tell(std::move(failure_));
    lanes_.stop();
    messages_.stop();
    give_up(call.sequence, waiter);
  }
  return std::move(failure_);
}

Status DeviceExecutor::drive(Waiter& waiter) {
  EPCCL_TRY(begin());
  EPCCL_TRY(monitor_.check());
  waiter.moved();
  while (failure_.ok() && !through()) {
    if (sweep()) {
      waiter.moved();
      continue;
    }
    if (!failure_.ok() || through()) break;
    EPCCL_TRY(idle(waiter));
  }
  return {};
}

// What peers begin from now on does not get to this rank's buffers.
void DeviceExecutor::give_up(uint64_t sequence, const Waiter& waiter) {
  node_.say_gave_up();
  end_use_with_peers(node_, sequence, waiter.peers_timeout());
}

Status DeviceExecutor::begin() {
  const CompiledPlan& plan = program_->plan;
  if (call_->progress != nullptr) call_->progress->begin(plan);
  steps_.begin(plan);
  waits_.begin();
  messages_.begin(*call_, *program_, own_buffers());
  log::info_once(log::coll, rank_, "{}, GPU {}: messages over {} {}", call_->text, device_.ordinal(),
                 network_.name(), messages_.way());
  return lanes_.begin(*program_, *call_);
}

// What the device does wakes nobody.
Status DeviceExecutor::idle(Waiter& waiter) {
  if (lanes_.busy() || messages_.copying()) return waiter.nap([this] { return describe(); });
  return waiter.idle([this] { return waits_.reasons(call_->sequence); }, messages_.on_network(),
                     [this] { return sweep(); }, [this] { return describe(); });
}

// Everything that can move now, moved once.
bool DeviceExecutor::sweep() {
  bool moved = run_ready();
  if (!failure_.ok()) return true;
  moved |= poll_waits();
  if (lanes_.busy()) moved |= poll_device();
  moved |= poll_messages();
  return moved;
}

bool DeviceExecutor::run_ready() {
  const bool any =
      steps_.start_all([this](uint32_t index) { start(index); }, [this] { return failure_.ok(); });
  if (!any || !failure_.ok()) return any;
  if (Status status = lanes_.close(); !status.ok()) fail(std::move(status));
  return true;
}

void DeviceExecutor::start(uint32_t index) {
  const CompiledStep& step = program_->plan.steps[index];
  switch (step.step.kind) {
    case Kind::copy:
    case Kind::reduce:
    case Kind::move_rows:
    case Kind::reduce_rows:
      if (!node_.begin_use(call_->sequence)) return fail(node_.why_gave_up());
      if (Status status = lanes_.start(index); !status.ok()) return fail(std::move(status));
      return given(index);
    case Kind::send:
    case Kind::recv:
      // A message of no rows: the other end knows, too.
      return step.step.rows == 0 ? complete(index) : start_message(index);
    case Kind::post:
      node_.post(step.step.slot, counter_value(call_->sequence, step.step.value));
      return complete(index);
    case Kind::wait:
      if (satisfied(step.peer_local, step.step.slot, step.step.value)) return complete(index);
      return waits_.add(index, step);
    default:
      return fail(error(Code::internal_error, "step {}: {} of GPU memory", index, to_string(step.step.kind)));
  }
}

void DeviceExecutor::start_message(uint32_t index) {
  const plan::Step& step = program_->plan.steps[index].step;
  const bool is_send = step.kind == Kind::send;
  const plan::Location& at = is_send ? step.source : step.destination;
  const DeviceMessages::Message message{index,
                                        step.peer,
                                        program_->first_piece[index],
                                        at.buffer,
                                        own_buffers()[static_cast<size_t>(at.buffer)] + at.offset,
                                        step.total_bytes()};
  if (is_send) {
    messages_.send(message);
  } else {
    messages_.recv(message);
  }
}

// Queues order what follows there; the host has to wait until it is complete.
void DeviceExecutor::given(uint32_t index) {
  const CompiledStep& step = program_->plan.steps[index];
  for (uint32_t s = step.first_successor; s < step.last_successor; ++s)
    if (const uint32_t successor = program_->plan.successors[s]; program_->is_for_queue(successor))
      steps_.release(successor);
}

void DeviceExecutor::complete(uint32_t index) {
  steps_.completed();
  if (call_->progress != nullptr) call_->progress->completed(program_->plan.steps[index].step);
  const bool was_given = program_->is_for_queue(index);
  const CompiledStep& step = program_->plan.steps[index];
  for (uint32_t s = step.first_successor; s < step.last_successor; ++s)
    if (const uint32_t successor = program_->plan.successors[s];
        !was_given || !program_->is_for_queue(successor))
      steps_.release(successor);
}

bool DeviceExecutor::satisfied(int local, int slot, uint32_t value) {
  const uint64_t reached = node_.counter(local, slot);
  if (reached < counter_value(call_->sequence, value)) return false;
  if (reached >= device::released) fail(node_.why_gave_up());
  return true;
}

bool DeviceExecutor::poll_waits() {
  return waits_.poll(
      [this](const PendingWaits::Wait& wait) { return satisfied(wait.local, wait.slot, wait.value); },
      [this](uint32_t index) { complete(index); });
}

bool DeviceExecutor::poll_device() {
  through_.clear();
  if (Status status = lanes_.poll(through_); !status.ok()) fail(std::move(status));
  for (const uint32_t index : through_) complete(index);
  if (!lanes_.busy()) node_.end_use();
  return !through_.empty();
}

bool DeviceExecutor::poll_messages() {
  const auto moved = messages_.move();
  if (!moved.ok()) {
    fail_message(moved.status());
    return true;
  }
  while (const auto step = messages_.done()) complete(*step);
  if (call_->progress != nullptr && messages_.drained()) call_->progress->drained();
  return *moved;
}

void DeviceExecutor::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

void DeviceExecutor::fail_message(const Status& status) {
  // The hub compares what the ranks say they call: it may know better what is wrong.
  monitor_.bootstrap().report_stall({call_->sequence, std::string(call_->text), status.message()});
  fail(monitor_.explain(
      Status(status).with_context(fmt::format("call {} ({})", call_->sequence, call_->text))));
}

Waiter::Situation DeviceExecutor::describe() const {
  return {call_->sequence, std::string(call_->text), waiting_text()};
}

std::string DeviceExecutor::waiting_text() const {
  if (!waits_.empty()) {
    const uint32_t index = waits_.front().step;
    const plan::Step& step = program_->plan.steps[index].step;
    return fmt::format("rank {} (same node): step {} wait for its counter {} to reach {}", step.peer, index,
                       step.slot, step.value);
  }
  if (lanes_.busy()) return "its copy engines";
  const std::string message = messages_.waiting_for();
  return message.empty() ? "nothing: this is a defect" : message;
}

}  // namespace epccl::runtime
