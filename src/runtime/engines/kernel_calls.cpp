#include "runtime/engines/kernel_calls.hpp"

#include <algorithm>

#include "algorithms/tables/table_exchange.hpp"
#include "base/caught.hpp"
#include "base/clock.hpp"
#include "device/kernels/kernel_queue.hpp"
#include "runtime/engines/across_nodes.hpp"
#include "runtime/engines/kept_memory.hpp"
#include "runtime/streams/turn_words.hpp"
#include "runtime/times/call_times.hpp"

namespace epccl::runtime {

KernelCalls::KernelCalls(device::Device& device, const topology::Cluster& cluster, int rank,
                         transports::NodeMemory& node, FailureMonitor& monitor, Executor& executor,
                         CopyEngines& engines)
    : device_(device),
      cluster_(cluster),
      rank_(rank),
      node_(node),
      monitor_(monitor),
      executor_(executor),
      engines_(engines),
      words_(node, device) {}

Status KernelCalls::prepare() {
  EPCCL_ASSIGN(engine_, device_.make_queue(device::QueueKind::compute));
  if (engines_.can_move_by_cores()) {
    EPCCL_ASSIGN(cores_, device_.make_queue(device::QueueKind::cores));
    cores_->set_default_blocks(
        engines_.most_blocks());  // of copies; kernels of rows are as wide as they can be
  }
  make_as({});
  return {};
}

EngineChoice KernelCalls::choose(EngineUse use) const {
  const bool by_cores = use == EngineUse::never;
  if (by_cores && !engines_.can_move_by_cores())
    return EngineChoice::host(
        "never, and kernels are not to: there are none, or GPUs of the node are not known to reach each "
        "other");
  // A sum has a part from each rank of the node, and from each other node.
  int widest = 0;
  for (int node = 0; node < cluster_.nodes(); ++node) widest = std::max(widest, cluster_.local_size(node));
  if (widest + cluster_.nodes() - 1 > static_cast<int>(device::kernels::max_peers))
    return EngineChoice::host("more ranks than a kernel can name");
  if (!device::kernels::has_kernels(*engine_)) return EngineChoice::host("there are no kernels");
  const auto queued = [by_cores](const char* why) {
    return by_cores ? EngineChoice::compute_cores(why) : EngineChoice::copy_engines(why);
  };
  if (!across_nodes()) return queued("one node");
  if (engines_.across() == nullptr) return EngineChoice::host("several nodes without a network");
  return queued("several nodes: messages beside them");
}

Status KernelCalls::copy(std::span<const device::CopyWork> copies) {
  return queue_->run_out(queue_->copy(copies));
}

Status KernelCalls::run_alone(const std::function<Status(device::Queue& queue)>& work) {
  return queue_->run_out(work(*queue_));
}

Call KernelCalls::call_on(const RowBuffers& rows, const std::string& text, const CallDevice& on) {
  text_ = text + ", kernels";
  Call call{executor_.next_sequence(), rows.input.data[0], rows.output.data[0], text_, &rows, nullptr};
  call.on = &on;
  return call;
}

Status KernelCalls::run(const RowBuffers& rows, const std::string& text, CallProgress* progress,
                        const Work& work) {
  if (work.before != nullptr && behind_ == nullptr) EPCCL_TRY(run_alone(work.before));
  EPCCL_TRY(monitor_.check_lightly());
  uint64_t bytes = 0;
  for (size_t part = 0; part < rows.format.count; ++part) bytes += rows.output.bytes[part];
  if (progress != nullptr) progress->begin_on_node(bytes);
  Call call = call_on(rows, text, engines_.buffers().on());
  call.behind = behind_;
  executor_.waiter().begin(false, behind_);
  peers_have_buffers_ = false;
  // Whatever is thrown, what is queued already is let through.
  Status status = caught([&] { return run_call(call, work); });
  // Buffers go back to the user.
  if (status.ok()) node_.end_use();
  if (!status.ok()) status = monitor_.tell(std::move(status));
  if (!status.ok() && behind_ != nullptr) {
    node_.say_gave_up();  // before anything goes on that is not to
    behind_->let_go();
  }
  if (!status.ok() && peers_have_buffers_) engines_.give_up(status, call.sequence, *queue_);
  if (!status.ok()) static_cast<void>(queue_->synchronize());
  near_ = {};
  engines_.buffers().mapped().calls_over(call.sequence);
  if (progress != nullptr && status.ok()) progress->completed_on_node();
  return status;
}

Status KernelCalls::run_call(const Call& call, const Work& work) {
  if (!across_nodes()) CallTimes::all_wait_for_all(call.sequence);
  NodeCalls& calls = executor_.calls();
  EPCCL_TRY(calls.begin(call, 0, 0));
  EPCCL_TRY(calls.meet());
  peers_have_buffers_ = true;
  if (!node_.begin_use(call.sequence)) return node_.why_gave_up();
  auto peers = find_peers(call);
  // A peer's memory that is gone is the echo of its end, which may have had a reason.
  if (!peers.ok()) return monitor_.explain(std::move(peers).take_status());
  near_ = engines_.buffers().near_words(call.sequence);
  EPCCL_TRY(queue_call(call, work, *peers));
  EPCCL_TRY(wait_for_queue(call));
  node_.posted(transports::done_counter);  // what a queue raises wakes nobody
  // Then the queue did not wait for all of them, whatever their counters say by now.
  if (node_.gave_up()) return node_.why_gave_up();
  return {};
}

Status KernelCalls::queue_call(const Call& call, const Work& work, std::span<const PeerRows> peers) {
  waits_.clear();
  if (call.behind != nullptr) EPCCL_TRY(come_behind(call, work));
  EPCCL_TRY(await_streams(call));
  EPCCL_TRY(work.across(*queue_, peers));
  EPCCL_TRY(queue_parting(call));
  if (work.after != nullptr) EPCCL_TRY(work.after(*queue_, peers));
  return call.behind != nullptr && call.behind->end != nullptr ? queue_->record(*call.behind->end) : Status{};
}

// The queue comes with the stream, and says so when peers may use this rank's rows.
Status KernelCalls::come_behind(const Call& call, const Work& work) {
  std::span<const device::WordValue> come(&call.behind->come, 1);
  if (work.before != nullptr) {
    EPCCL_TRY(queue_->post_after(std::exchange(come, {}), {}));
    EPCCL_TRY(work.before(*queue_));
  }
  return words_.post_after(*queue_, come, transports::stream_counter, call.sequence, near_);
}

// Of peers whose queues say when they have come.
Status KernelCalls::await_streams(const Call& call) {
  for (int local = 0; local < node_.local_size(); ++local)
    if (local != node_.local() && node_.call(local, call.sequence).is_behind != 0)
      EPCCL_TRY(wait_for_peer(call, local, transports::stream_counter, "come to this call in its stream"));
  return queue_waits();
}

// Each rank's queue says that it is through, and waits for the others'.
Status KernelCalls::queue_parting(const Call& call) {
  constexpr int slot = transports::done_counter;
  EPCCL_TRY(words_.post_after(*queue_, {}, slot, call.sequence, near_));
  for (int local = 0; local < node_.local_size(); ++local) {
    if (local == node_.local()) continue;
    EPCCL_TRY(wait_for_peer(call, local, slot, "finish this call"));
    waits_.back().near = near_.looked_at(local, slot);
  }
  return queue_waits();
}

// Once a queue of the peer's has what raises its counter.
Status KernelCalls::wait_for_peer(const Call& call, int local, int slot, const char* what) {
  EPCCL_ASSIGN(const device::WordValue wait, words_.wait_for(local, slot, call.sequence, executor_.waiter(),
                                                             [&] { return waiting_for(call, local, what); }));
  waits_.push_back(wait);
  return {};
}

Status KernelCalls::queue_waits() {
  Status status = waits_.empty() ? Status{} : queue_->post_after(waits_, {});
  waits_.clear();
  return status;
}

// Streams that have yet to come; when this rank is through it is the others that it waits for.
Waiter::Situation KernelCalls::describe(const Call& call) const {
  for (int local = 0; local < node_.local_size(); ++local)
    if (local != node_.local() && node_.call(local, call.sequence).is_behind != 0 &&
        node_.counter(local, transports::stream_counter) < call.sequence)
      return waiting_for(call, local, "come to this call in its stream");
  for (int local = 0; local < node_.local_size() && node_.done(node_.local()) >= call.sequence; ++local)
    if (node_.done(local) < call.sequence) return waiting_for(call, local, "finish this call");
  return {call.sequence, std::string(call.text), "its kernels"};
}

Waiter::Situation KernelCalls::waiting_for(const Call& call, int local, const char* what) const {
  return {call.sequence, std::string(call.text), fmt::format("rank {} to {}", rank_at(local), what)};
}

Result<std::vector<PeerRows>> KernelCalls::find_peers(const Call& call) {
  return find_rows(call, [&](int local, const transports::BufferRef& buffer) {
    return engines_.buffers().address_of(local, buffer, call.sequence);
  });
}

Status KernelCalls::gather(const std::byte* own, std::byte* all, uint64_t bytes, uint64_t chunk_bytes,
                           const CallName& name) {
  EPCCL_TRY(monitor_.check_lightly());
  Call call{executor_.next_sequence(), own, all, name.text};
  call.meaning = name.meaning;
  call.input_bytes = bytes;
  call.output_bytes = bytes * static_cast<uint64_t>(cluster_.ranks());
  CallTimes::all_wait_for_all(call.sequence);
  const EngineChoice choice = by_cores_ ? EngineChoice::compute_cores("") : EngineChoice::copy_engines("");
  return engines_.run(call, choice, {false, true},
                      [&](const CopyEngines::Reach&, int rank) -> Result<plan::RankPlan> {
                        return algorithms::build_table_exchange(cluster_, rank, bytes, chunk_bytes);
                      });
}

Result<DeviceProgram> KernelCalls::make_program(const plan::RankPlan& plan) const {
  return engines_.across()->make(plan, plan::Makers::engines);
}

Status KernelCalls::use_tables(DeviceProgram& program, std::shared_ptr<const plan::RowTables> tables) const {
  return program.use_tables(std::move(tables), engines_.across()->piece_bytes());
}

Status KernelCalls::run_plan(const PlannedCall& planned, const CallName& name, CallProgress* progress) {
  EPCCL_TRY(monitor_.check_lightly());
  const CallDevice on{&device_, &engines_.buffers().mapped()};
  Call call = call_on(planned.shown, name.text, on);
  call.meaning = name.meaning;
  call.progress = progress;
  executor_.waiter().begin(false);
  Status status = run_planned(call, planned);
  engines_.buffers().mapped().calls_over(call.sequence);
  return status;
}

Status KernelCalls::run_planned(const Call& call, const PlannedCall& planned) {
  EPCCL_TRY(executor_.calls().begin(call, 0, 0));
  EPCCL_TRY(executor_.calls().meet());
  auto peers = caught([&] { return find_peers(call); });
  if (!peers.ok()) {
    Status status = monitor_.tell(monitor_.explain(std::move(peers).take_status()));
    engines_.across()->give_up(call.sequence, executor_.waiter());
    return status;
  }
  const RowBuffers& own = planned.rows;
  RowCall rows{own.format,          std::move(peers).value(), engines_.buffers().own_scratch(call.sequence),
               own.weights_per_row, planned.tables,           planned.spread};
  const auto local = static_cast<size_t>(node_.local());
  for (size_t part = 0; part < transports::call_parts; ++part) {
    rows.ranks[local].inputs[part] = static_cast<std::byte*>(own.input.data[part]);
    rows.ranks[local].outputs[part] = static_cast<std::byte*>(own.output.data[part]);
  }
  QueueCall queued{call.sequence, std::string(call.text), {}, nullptr, {}, &rows, call.progress, by_cores_};
  queued.movers.blocks = engines_.most_blocks();
  queued.meaning = call.meaning;
  queued.buffers.resize(rows.ranks.size());
  queued.buffers[local] = {rows.ranks[local].inputs[0], rows.ranks[local].outputs[0], rows.scratch};
  return engines_.across()->run(planned.program, queued, executor_.waiter());
}

Status KernelCalls::capture(const IntoGraph& graph, const RowBuffers& rows, const std::string& text,
                            const Work& work) {
  EPCCL_TRY(monitor_.check_lightly());
  CapturedCalls& captured = *engines_.captures();
  Call call = call_on(rows, text, captured.on());
  // Ranks that disagree about the graph are told.
  text_ += ", captured into a graph";
  call.text = text_;
  call.capture = graph.stream;
  executor_.waiter().begin(false);
  EPCCL_TRY(executor_.calls().begin(call, 0, 0));
  EPCCL_TRY(executor_.calls().meet());
  const auto add = [&]() -> Status {
    EPCCL_ASSIGN(const std::vector<PeerRows> peers,
                 find_rows(call, [&](int local, const transports::BufferRef& buffer) {
                   return captured.address_of(local, buffer);
                 }));
    ChainWork chain{work.before, [&](device::Queue& queue) { return work.across(queue, peers); }, nullptr};
    if (work.after != nullptr) chain.after = [&](device::Queue& queue) { return work.after(queue, peers); };
    using All = std::pair<std::shared_ptr<const void>, std::vector<std::shared_ptr<const void>>>;
    return captured.add(call, chain, std::make_shared<All>(graph.kept, rooms_here(call)));
  };
  if (Status status = add(); !status.ok()) return monitor_.explain(std::move(status));
  node_.set_done(call.sequence);
  return {};
}

// What the library has lent other ranks of this process, which graphs use as it is.
std::vector<std::shared_ptr<const void>> KernelCalls::rooms_here(const Call& call) const {
  std::vector<std::shared_ptr<const void>> rooms;
  const auto add = [&](const transports::BufferRef& buffer) {
    if (buffer.bytes == 0) return;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as the rank wrote it
    if (auto room = KeptMemory::at(reinterpret_cast<const void*>(buffer.address)))
      rooms.push_back(std::move(room));
  };
  for (int local = 0; local < node_.local_size(); ++local) {
    if (local == node_.local() || !node_.is_of_this_process(local)) continue;
    const transports::CallRecord& record = node_.call(local, call.sequence);
    for (size_t part = 0; part < transports::call_parts; ++part) {
      add(record.inputs[part]);
      add(record.outputs[part]);
    }
    add(record.weights);
  }
  return rooms;
}

Result<std::vector<PeerRows>> KernelCalls::find_rows(const Call& call, const FindBuffer& find_mapped) {
  std::vector<PeerRows> peers(static_cast<size_t>(node_.local_size()));
  const auto find = [&](int local, const transports::BufferRef& buffer) -> Result<std::byte*> {
    if (buffer.bytes == 0) return static_cast<std::byte*>(nullptr);
    if (local == node_.local()) return reinterpret_cast<std::byte*>(buffer.address);
    if (buffer.has_memory == 0 && !node_.is_of_this_process(local))
      return error(Code::device_error, "memory of rank {} on GPU {} cannot be mapped", rank_at(local),
                   device_.ordinal());
    return find_mapped(local, buffer);
  };
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::CallRecord& record = node_.call(local, call.sequence);
    PeerRows& rows = peers[static_cast<size_t>(local)];
    for (size_t part = 0; part < transports::call_parts; ++part) {
      EPCCL_ASSIGN(rows.inputs[part], find(local, record.inputs[part]));
      EPCCL_ASSIGN(rows.outputs[part], find(local, record.outputs[part]));
    }
    EPCCL_ASSIGN(const std::byte* weights, find(local, record.weights));
    rows.weights = reinterpret_cast<const float*>(weights);
  }
  return peers;
}

Status KernelCalls::wait_for_queue(const Call& call) {
  TurnWords& words = TurnWords::of(device_);
  EPCCL_ASSIGN(const TurnWords::Word through, words.take());
  Status status = queue_->post_after({}, last_posts(call.behind, {through.come, through.value}));
  const bool is_coming = status.ok();
  if (status.ok() && call.behind != nullptr) call.behind->queued({through.come, through.value});
  if (status.ok()) status = wait_for_word(call, *through.come, through.value);
  words.end(through, is_coming);
  executor_.waiter().moved();
  return status.ok() ? queue_->failure() : status;
}

// The queue raises the word; but what goes wrong on the GPU ends it without one.
Status KernelCalls::wait_for_word(const Call& call, const device::SignalWord& word, uint64_t value) {
  Waiter& waiter = executor_.waiter();
  waiter.moved();
  double next_look = now_seconds() + driver_look_period;
  while (word.load(std::memory_order_acquire) < value) {
    if (const double now = now_seconds(); now >= next_look) {
      next_look = now + driver_look_period;
      EPCCL_ASSIGN(const bool is_idle, queue_->idle());
      if (is_idle) break;
    }
    EPCCL_TRY(waiter.nap([&] { return describe(call); }));
  }
  return {};
}

}  // namespace epccl::runtime
