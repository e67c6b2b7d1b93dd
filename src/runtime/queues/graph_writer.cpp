#include "runtime/queues/graph_writer.hpp"

#include "device/kernels/kernel_queue.hpp"
#include "runtime/executor/counter_values.hpp"

namespace epccl::runtime {

using plan::Kind;
using plan::Lane;
using transports::done_counter;
using transports::meeting_counter;

static_assert(transports::node_max_ranks <= static_cast<int>(device::kernels::max_signal_ranks));
static_assert(transports::node_max_ranks <= static_cast<int>(device::kernels::max_graph_waits));
static_assert(value_bits <= device::kernels::pass_shift);  // for the values of plans

GraphWriter::GraphWriter(std::shared_ptr<GraphRoom> room, const topology::Cluster& cluster, int local,
                         int local_size)
    : room_(std::move(room)),
      cluster_(cluster),
      local_(local),
      local_size_(local_size),
      feed_(room_->device(), cluster, {}) {}

Status GraphWriter::write(const QueueProgram& program, const QueueCall& call,
                          const std::vector<std::byte*>& rooms, std::shared_ptr<const void> kept,
                          device::Queue& stream) {
  EPCCL_TRY(find_queues(program, stream));
  // What of it is in the graph is there to stay.
  EPCCL_TRY(stream.keep_in_graph(std::move(kept)));
  describe_ranks(rooms);
  EPCCL_TRY(follow(stream));
  EPCCL_TRY(begin(call.sequence));
  feed_.begin(program, call, queues_);
  EPCCL_TRY(write_operations(program));
  EPCCL_TRY(end(program));
  return go_on(stream);
}

// What comes after the second meeting waits for nobody, so the pass is over then.
Status GraphWriter::write(const ChainWork& work, uint64_t sequence, const std::vector<std::byte*>& rooms,
                          std::shared_ptr<const void> kept, device::Queue& stream) {
  EPCCL_TRY(find_control(stream).status());
  queues_.clear();
  EPCCL_TRY(stream.keep_in_graph(std::move(kept)));
  describe_ranks(rooms);
  EPCCL_TRY(follow(stream));
  if (work.before != nullptr) EPCCL_TRY(work.before(*control_));
  EPCCL_TRY(begin(sequence));
  if (work.across != nullptr) EPCCL_TRY(work.across(*control_));
  tell_all(done_counter, 1);
  wait_for_all(done_counter, 1);
  signals_.ends = 1;
  EPCCL_TRY(flush_signals());
  if (work.after != nullptr) EPCCL_TRY(work.after(*control_));
  return go_on(stream);
}

Status GraphWriter::write(uint64_t number, Half half, std::shared_ptr<const void> kept,
                          device::Queue& stream) {
  EPCCL_TRY(find_control(stream).status());
  EPCCL_TRY(stream.keep_in_graph(std::move(kept)));
  device::kernels::HostCallParameters parameters{
      room_->host_call_count(), &room_->host_calls(), &room_->report(), number, 0, 0};
  if (half != Half::waits) {
    parameters.says = 1;
    EPCCL_TRY(follow(stream));
    EPCCL_TRY(go_on(stream));
  }
  if (half != Half::says) parameters.waits = 1;
  EPCCL_TRY(device::kernels::queue_kernel(stream, device::kernels::host_call_launch(parameters)));
  if (half == Half::says) return {};
  EPCCL_TRY(follow(stream));
  return go_on(stream);
}

Result<GraphRoom::Queues*> GraphWriter::find_control(device::Queue& stream) {
  EPCCL_ASSIGN(const uint64_t capture, stream.capture());
  EPCCL_ASSIGN(GraphRoom::Queues * queues, room_->queues_of(capture));
  control_ = queues->control.get();
  return queues;
}

Status GraphWriter::find_queues(const QueueProgram& program, device::Queue& stream) {
  EPCCL_ASSIGN(GraphRoom::Queues * queues, find_control(stream));
  queues_.clear();
  std::array<size_t, plan::lanes> used{};
  for (const Lane lane : program.queues) {
    if (lane == Lane::signal) {
      queues_.push_back(control_);
      continue;
    }
    auto& of_lane = queues->lanes[static_cast<size_t>(lane)];
    const size_t number = used[static_cast<size_t>(lane)]++;
    if (number == of_lane.size()) {
      EPCCL_ASSIGN(auto made, room_->device().make_queue(kind_of(lane, program.by_cores)));
      of_lane.push_back(std::move(made));
    }
    queues_.push_back(of_lane[number].get());
  }
  return {};
}

void GraphWriter::describe_ranks(const std::vector<std::byte*>& rooms) {
  signals_ = {};
  std::byte* mine = rooms[static_cast<size_t>(local_)];
  signals_.pass = GraphRoom::pass_in(mine);
  signals_.words = GraphRoom::words_in(mine, 0);
  signals_.report = &room_->report();
  signals_.ranks = static_cast<uint32_t>(local_size_);
  signals_.slots = transports::node_counters;
  for (int other = 0; other < local_size_; ++other)
    if (other != local_)
      signals_.told[other] = GraphRoom::words_in(rooms[static_cast<size_t>(other)], local_);
}

Status GraphWriter::follow(device::Queue& stream) {
  EPCCL_ASSIGN(device::QueueEvent * before, room_->event(0));
  EPCCL_TRY(stream.record(*before));
  return control_->wait(*before);
}

void GraphWriter::tell_all(int slot, uint32_t value) {
  signals_.posts[signals_.post_count++] = {static_cast<uint32_t>(slot), value};
}

void GraphWriter::wait_for_all(int slot, uint32_t value) {
  for (int other = 0; other < local_size_; ++other)
    if (other != local_)
      signals_.waits[signals_.wait_count++] = {static_cast<uint16_t>(other), static_cast<uint16_t>(slot),
                                               value};
}

Status GraphWriter::begin(uint64_t sequence) {
  signals_.begins = 1;
  tell_all(meeting_counter, static_cast<uint32_t>(sequence & device::kernels::pass_value_mask));
  wait_for_all(meeting_counter, 0);
  EPCCL_TRY(flush_signals());
  EPCCL_ASSIGN(device::QueueEvent * before, room_->event(0));
  EPCCL_TRY(control_->record(*before));
  for (device::Queue* queue : queues_)
    if (queue != control_) EPCCL_TRY(queue->wait(*before));
  return {};
}

Status GraphWriter::write_operations(const QueueProgram& program) {
  for (const QueueOperation& operation : program.operations) EPCCL_TRY(write_operation(program, operation));
  return feed_.flush_all();
}

// Events of the program come behind the one of begin().
Status GraphWriter::write_operation(const QueueProgram& program, const QueueOperation& operation) {
  using Operation = QueueOperation::Kind;
  const uint32_t queue = operation.queue;
  if (operation.kind == Operation::step) {
    const plan::Step& step = program.steps[operation.index];
    if (step.kind == Kind::copy) return feed_.copy(queue, step, operation.begins_list);
    if (step.kind != Kind::reduce) return add_signal(step);
    EPCCL_TRY(feed_.flush(queue));
    return feed_.reduce(queue, step, {&step + 1, operation.also});
  }
  EPCCL_TRY(feed_.flush(queue));
  if (queues_[queue] == control_) EPCCL_TRY(flush_signals());
  EPCCL_ASSIGN(device::QueueEvent * event, room_->event(1 + operation.index));
  if (operation.kind == Operation::record) return queues_[queue]->record(*event);
  if (operation.kind == Operation::join) return queues_[queue]->wait(*event);
  return {Code::internal_error, "a program for a graph waits outside of its chain"};
}

// A launch posts first and waits then.
Status GraphWriter::add_signal(const plan::Step& step) {
  if (step.kind == Kind::post) {
    if (signals_.wait_count > 0 || signals_.post_count == device::kernels::max_graph_posts)
      EPCCL_TRY(flush_signals());
    signals_.posts[signals_.post_count++] = {step.slot, step.value};
    return {};
  }
  // What a rank posts itself comes before in its chain.
  if (cluster_.local_of(step.peer) == local_) return {};
  if (signals_.wait_count == device::kernels::max_graph_waits) EPCCL_TRY(flush_signals());
  signals_.waits[signals_.wait_count++] = {static_cast<uint16_t>(cluster_.local_of(step.peer)), step.slot,
                                           step.value};
  return {};
}

Status GraphWriter::flush_signals() {
  if (signals_.post_count == 0 && signals_.wait_count == 0 && signals_.ends == 0) return {};
  Status status = device::kernels::queue_kernel(*control_, device::kernels::signals_launch(signals_));
  ++signals_.step;
  signals_.begins = signals_.post_count = signals_.wait_count = 0;
  return status;
}

Status GraphWriter::end(const QueueProgram& program) {
  // Peers wait for posts, not for what comes after them here.
  if (signals_.post_count > 0) EPCCL_TRY(flush_signals());
  for (size_t queue = 0; queue < queues_.size(); ++queue) {
    if (queues_[queue] == control_) continue;
    EPCCL_ASSIGN(device::QueueEvent * over, room_->event(1 + program.events + queue));
    EPCCL_TRY(queues_[queue]->record(*over));
    EPCCL_TRY(control_->wait(*over));
  }
  signals_.ends = 1;
  return flush_signals();
}

Status GraphWriter::go_on(device::Queue& stream) {
  EPCCL_ASSIGN(device::QueueEvent * through, room_->event(0));
  EPCCL_TRY(control_->record(*through));
  return stream.wait(*through);
}

}  // namespace epccl::runtime
