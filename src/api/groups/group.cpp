#include "api/groups/group.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "api/groups/capturing.hpp"
#include "api/groups/concurrently.hpp"
#include "api/groups/first_call.hpp"
#include "api/groups/message_moves.hpp"
#include "api/groups/open_group.hpp"
#include "api/groups/simulate.hpp"
#include "api/groups/stream_work.hpp"
#include "base/caught.hpp"
#include "base/threads_own.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/engines/graph_writes.hpp"

namespace epccl::api {
namespace {

Group& group() {
  return threads_own<Group>();
}

// Until all streams of a group have come, calls of graphs go first, which these streams may be waiting for.
using Ways = std::vector<std::optional<runtime::Communicator::GivingWay>>;  // by batch

// One that has failed by then ends before the others' streams have come, and lets its own go.
void wait_for_streams(std::vector<Batch>& batches, Ways& ways) {
  for (size_t i = 0; i < batches.size(); ++i) {
    Batch& batch = batches[i];
    batch.outcome = runtime::P2p::wait_for_streams(batch.operations);
    if (batch.outcome.ok()) continue;
    ways[i].reset();
    end_failed({batch.communicator.get(), &batch.outcome});
    batch.operations.clear();
  }
  ways.clear();
  for (Batch& batch : batches) {
    if (!batch.outcome.ok()) continue;
    batch.outcome = batch.communicator->failure();
    if (batch.outcome.ok()) continue;
    end_failed({batch.communicator.get(), &batch.outcome});
    batch.operations.clear();
  }
}

void start_and_move(std::vector<Batch>& batches, Ways& ways) {
  wait_for_streams(batches, ways);
  std::vector<Moving> started;
  for (Batch& batch : batches) {
    if (!batch.outcome.ok()) continue;
    const Moving moving{batch.communicator.get(), &batch.outcome};
    batch.outcome = batch.communicator->p2p().start(batch.operations);
    batch.outcome.ok() ? started.push_back(moving) : end_failed(moving);
    batch.operations.clear();  // which lets streams go
  }
  move_messages(std::move(started));
}

// What is thrown is everybody's: nobody knows how far the others are.
void start_and_finish(std::vector<Batch>& batches, Ways& ways) {
  const Status thrown = caught([&]() -> Status {
    start_and_move(batches, ways);
    return {};
  });
  ways.clear();
  for (Batch& batch : batches) {
    if (thrown.ok() || !batch.outcome.ok()) continue;
    batch.outcome = thrown;
    end_failed({batch.communicator.get(), &batch.outcome});
  }
}

// Takes each communicator's turn, the one inside the other, then moves all of them. Each has an outcome of its own: what ends one is nothing
// to the others. `skipped`: why one of them had no turn.
void run_batches(std::vector<Batch>& batches, size_t at, Ways& ways, Status& skipped) {
  if (at == batches.size()) return start_and_finish(batches, ways);
  bool has_turn = false;
  Status status = batches[at].communicator->run(batches[at].ticket, [&] {
    has_turn = true;
    ways[at].emplace(*batches[at].communicator);
    run_batches(batches, at + 1, ways, skipped);
    return batches[at].outcome;
  });
  if (has_turn) {
    batches[at].outcome = std::move(status);
    return;
  }
  // This one had failed before. The others have their turns to take, and their ranks wait for them.
  if (skipped.ok()) skipped = std::move(status);
  batches.erase(batches.begin() + static_cast<std::ptrdiff_t>(at));
  ways.pop_back();
  run_batches(batches, at, ways, skipped);
}

// All batches of a stream, once the other streams have come that have a part in one.
Status run_all(std::vector<Batch>& batches) {
  for (const Batch& batch : batches)
    for (const std::future<void>& arrival : batch.arrivals) arrival.wait();
  std::vector<std::shared_ptr<std::promise<Status>>> ends;
  for (const Batch& batch : batches)
    if (batch.end != nullptr) ends.push_back(batch.end);
  Ways ways(batches.size());
  Status skipped, first;
  run_batches(batches, 0, ways, skipped);
  for (Batch& batch : batches)
    if (first.ok()) first = std::move(batch.outcome);
  if (first.ok()) first = std::move(skipped);
  for (const auto& end : ends) end->set_value(first);
  return first;
}

/// What a group does of one communicator on the calling thread's behalf.
struct CommCalls {
  CommPtr communicator;
  std::vector<Batch> batches;
  std::vector<QueuedCollective> collectives;

  Status run(runtime::GraphWrites& writes, size_t number) {
    runtime::GraphWrites::Lane here(writes, number);
    Status first = batches.empty() ? Status{} : run_all(batches);
    for (QueuedCollective& collective : collectives) {
      if (Status status = collective.run(); first.ok()) first = std::move(status);
      if (collective.is_captured) here.call_over();
    }
    return first;
  }
};

std::vector<CommCalls> calls_by_communicator(StreamWork work) {
  std::vector<CommCalls> lanes;
  const auto of = [&lanes](const CommPtr& communicator) -> CommCalls& {
    auto found = std::ranges::find(lanes, communicator, &CommCalls::communicator);
    return found != lanes.end() ? *found : lanes.emplace_back(CommCalls{communicator, {}, {}});
  };
  for (Batch& batch : work.batches) of(batch.communicator).batches.push_back(std::move(batch));
  for (QueuedCollective& collective : work.collectives)
    of(collective.communicator).collectives.push_back(std::move(collective));
  return lanes;
}

// Of each call that is captured, its lane: by communicator, those of one as each of its ranks has issued them, so that two ranks have the
// calls that they share in one order, and of several ranks that this thread drives none waits for a call that another has yet to write.
std::vector<size_t> order_of_writes(const std::vector<CommCalls>& lanes) {
  struct Write {
    const runtime::CommKey* key;
    size_t call, lane;
  };
  std::vector<Write> writes;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const auto calls = std::ranges::count_if(lanes[lane].collectives, &QueuedCollective::is_captured);
    for (size_t call = 0; call < static_cast<size_t>(calls); ++call)
      writes.push_back({&lanes[lane].communicator->key(), call, lane});
  }
  std::ranges::sort(writes, {},
                    [](const Write& write) { return std::tuple(*write.key, write.call, write.lane); });
  std::vector<size_t> order;
  order.reserve(writes.size());
  for (const Write& write : writes) order.push_back(write.lane);
  return order;
}

// The calling thread may drive several ranks, whose collectives wait for each other: each communicator's run on a thread of
// their own.
Status run_beside_each_other(StreamWork work) {
  std::vector<CommCalls> lanes = calls_by_communicator(std::move(work));
  runtime::GraphWrites writes(lanes.size());
  const std::vector<size_t> order = order_of_writes(lanes);
  std::vector<std::function<Status()>> parts;
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    parts.emplace_back([&, lane] { return lanes[lane].run(writes, lane); });
  // A lane alone runs on this thread.
  if (order.empty() || lanes.size() == 1) return run_concurrently(std::move(parts));
  return run_concurrently(std::move(parts), [&] { writes.serve(order); });
}

/// What one rank has on a stream: with its own communicator, and with those that were split or shrunk of it.
struct RankCalls {
  runtime::CommOrigin rank;
  std::vector<std::function<Status()>> calls;
};

// Whether the calls of some wait for those of others.
bool are_of_one(const std::vector<RankCalls>& ranks) {
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank)
    if (std::any_of(ranks.begin(), rank,
                    [&](const RankCalls& earlier) { return earlier.rank.key == rank->rank.key; }))
      return true;
  return false;
}

// What is on one stream runs in order. But ranks of one thread may have one stream, too: their calls wait for each other, not for their
// turns in it, and each rank's run in order.
void enqueue_collectives(device::HostStream& stream, std::vector<QueuedCollective> collectives) {
  std::vector<RankCalls> ranks;
  std::vector<size_t> rank_of;
  for (const QueuedCollective& call : collectives) {
    auto found = std::ranges::find(ranks, call.communicator->origin(), &RankCalls::rank);
    if (found == ranks.end()) found = ranks.insert(found, {call.communicator->origin(), {}});
    rank_of.push_back(static_cast<size_t>(found - ranks.begin()));
  }
  if (!are_of_one(ranks)) {
    for (QueuedCollective& collective : collectives)
      stream.enqueue(std::move(collective.run), std::move(collective.ahead));
    return;
  }
  for (size_t i = 0; i < collectives.size(); ++i)
    ranks[rank_of[i]].calls.push_back(std::move(collectives[i].run));
  stream.enqueue([shared = std::make_shared<std::vector<RankCalls>>(std::move(ranks))] {
    std::vector<std::function<Status()>> parts;
    for (RankCalls& each : *shared)
      parts.emplace_back([&each] {
        Status first;
        for (const auto& call : each.calls)
          if (Status status = call(); first.ok()) first = std::move(status);
        return first;
      });
    return run_concurrently(std::move(parts));
  });
}

// Streams wait for nothing but what other streams were given before: so groups of several threads on the same streams never wait for
// each other in a circle.
void enqueue(std::vector<StreamWork>& streams) {
  for (StreamWork& work : streams)
    for (StreamWork::Part& part : work.parts)
      work.stream->enqueue([arrival = std::make_shared<std::promise<void>>(std::move(part.arrival))] {
        arrival->set_value();
        return Status{};
      });
  for (StreamWork& work : streams)
    if (work.stream != nullptr && !work.batches.empty())
      work.stream->enqueue([shared = std::make_shared<std::vector<Batch>>(std::move(work.batches)),
                            told = std::move(work.end_of_batches)] {
        Status status = run_all(*shared);
        if (told != nullptr) told->set_value(status);
        return status;
      });
  for (StreamWork& work : streams)
    for (StreamWork::Part& part : work.parts)
      work.stream->enqueue([end = std::move(part.end), watchers = std::move(part.watchers)] {
        const device::HostStream::Watch watch(device::HostStream::runs_unwatched() ? nullptr : watchers);
        return end.get();
      });
  for (StreamWork& work : streams)
    if (work.stream != nullptr) enqueue_collectives(*work.stream, std::move(work.collectives));
}

Status run_inline(StreamWork work) {
  if (work.collectives.empty()) return run_all(work.batches);
  if (work.batches.empty() && work.collectives.size() == 1) return work.collectives.front().run();
  return run_beside_each_other(std::move(work));
}

/// Jobs that the group's end waits for. The first that fails ends the others that can be interrupted: what they wait for may be the one
/// that failed.
class BlockingJobs {
 public:
  void add(Job job) { jobs_.push_back(std::move(job)); }
  /// What failed first.
  Status run() {
    std::vector<std::function<Status()>> parts;
    for (Job& job : jobs_) parts.emplace_back([this, &job] { return run(job); });
    static_cast<void>(run_concurrently(std::move(parts)));
    return std::move(first_failure_);
  }

 private:
  Status run(Job& job) {
    Status status = job.run();
    if (status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (!first_failure_.ok()) return status;
    first_failure_ = status;
    for (const Job& each : jobs_) each.interrupt();
    return status;
  }

  std::vector<Job> jobs_;
  std::mutex mutex_;
  Status first_failure_;
};

Status run_jobs(std::vector<Job> jobs) {
  BlockingJobs blocking;
  Status progress;
  for (Job& job : jobs) job.begin();
  for (Job& job : jobs) {
    if (job.blocking) {
      blocking.add(std::move(job));
    } else {
      run_in_background([run = std::move(job.run)] { static_cast<void>(run()); });
      progress = Status(Code::in_progress, "");
    }
  }
  Status status = blocking.run();
  return status.ok() ? progress : status;
}

// Every stream is marked before any is held: the NULL stream's mark waits for what other streams were given before.
Status mark(const StreamTurns& turns) {
  for (const StreamTurn& each : turns) EPCCL_TRY(each.turn->mark());
  return {};
}

Status hold(const StreamTurns& turns) {
  Status first;
  for (const StreamTurn& each : turns)
    if (Status held = each.turn->hold(); first.ok()) first = std::move(held);
  return first;
}

std::vector<FirstCall> first_calls_of(const StreamTurns& turns) {
  std::vector<FirstCall> calls;
  for (const StreamTurn& each : turns) calls.emplace_back(each.turn);
  return calls;
}

// Calls that threads of the library make run although their streams do not wait for them. Streams of the program have errors of their own.
void wait_for_workers(const std::vector<StreamWork>& streams) {
  for (const StreamWork& work : streams)
    if (work.stream != nullptr && device::find_stream(work.stream) == nullptr)
      static_cast<void>(work.stream->synchronize());
}

// What goes to streams goes first: what runs here may wait for it.
Status launch(std::vector<Item>& items, StreamTurns turns = {}, const std::function<void()>& beside = {}) {
  Status begun = check_captured_streams(items);
  if (begun.ok()) begun = capture_messages(items);
  if (begun.ok()) begun = mark(turns);
  if (!begun.ok()) {
    items.clear();
    return begun;
  }
  std::vector<StreamWork> streams = sort_by_stream(items);
  std::vector<std::future<Status>> waited_for;
  for (StreamWork& work : streams)
    if (work.end_of_batches != nullptr) waited_for.push_back(work.end_of_batches->get_future());
  enqueue(streams);
  if (beside != nullptr) beside();
  const Status held = caught([&] { return hold(turns); });
  const std::vector<FirstCall> first_calls = first_calls_of(turns);
  turns.clear();
  Status first = held;
  for (StreamWork& work : streams)
    if (work.stream == nullptr)
      if (Status status = run_inline(std::move(work)); first.ok()) first = std::move(status);
  for (std::future<Status>& end : waited_for)
    if (Status status = end.get(); first.ok()) first = std::move(status);
  // The caller has the buffers back.
  if (!held.ok()) wait_for_workers(streams);
  // Whatever became of the others: these are under way.
  for (const FirstCall& call : first_calls)
    if (Status status = call.wait(); first.ok()) first = std::move(status);
  return first;
}

Status run_plain(PlainMessages messages) {
  EPCCL_TRY(messages.communicator->p2p().check_own(messages.operations));
  std::vector<Batch> batches;
  batches.push_back({std::move(messages.communicator), 0, std::move(messages.operations)});
  batches.front().ticket = batches.front().communicator->take_ticket();
  return run_all(batches);
}

}  // namespace

Status run_messages(runtime::Communicator& communicator,
                    const std::vector<runtime::P2pOperation>& operations) {
  Status outcome;
  Status thrown = caught([&]() -> Status {
    EPCCL_TRY(communicator.p2p().start(operations));
    move_messages({{&communicator, &outcome}});
    return {};
  });
  if (thrown.ok()) return outcome;
  thrown = communicator.tell(std::move(thrown));
  communicator.p2p().give_up(communicator.waiter().peers_timeout());
  return thrown;
}

Status submit(Item item) {
  if (group_depth > 0) {
    group().items().push_back(std::move(item));
    return {};
  }
  // Without a stream a call runs here and now, as cheap as it can be.
  if (item.stream == nullptr && std::holds_alternative<CollectiveWork>(item.what))
    return queued_collective(std::move(item)).run();
  std::vector<Item> items;
  items.push_back(std::move(item));
  return launch(items);
}

Status submit(CommPtr communicator, device::HostStream* stream, runtime::P2pOperation operation) {
  if (group_depth == 0 || stream != nullptr)
    return submit({std::move(communicator), stream, std::move(operation)});
  group().add(std::move(communicator), std::move(operation));
  return {};
}

Status submit(Job job) {
  std::vector<Job> jobs;
  if (group_depth > 0) {
    group().jobs.push_back(std::move(job));
    return {};
  }
  jobs.push_back(std::move(job));
  return run_jobs(std::move(jobs));
}

Status refuse(Status status) {
  if (status.ok() || status.code() == Code::in_progress || group_depth == 0) return status;
  if (group().refused.ok()) group().refused = status;
  return status;
}

bool in_group() {
  return group_depth > 0;
}

size_t calls_in_group(const HandlePtr& handle) {
  return count_calls(group().jobs, group().items(), handle);
}

bool group_uses(const device::HostStream* stream) {
  return std::ranges::any_of(group().items(), [&](const Item& item) { return item.stream == stream; });
}

void drop_from_group(const HandlePtr& handle) {
  if (Status dropped = drop_calls(group().jobs, group().items(), handle); !dropped.ok())
    static_cast<void>(refuse(std::move(dropped)));
}

Result<TurnPtr> turn_of_call(const runtime::DeviceWorker& worker, void* stream) {
  if (!in_group()) return worker.take_turn(stream);
  StreamTurns& known = group().turns;
  const auto is_it = [&](const StreamTurn& each) {
    return each.device == &worker.device() && each.stream == stream;
  };
  if (const auto found = std::ranges::find_if(known, is_it); found != known.end()) {
    found->turn->share_with(worker);
    return found->turn;
  }
  EPCCL_ASSIGN(TurnPtr turn, worker.plan_turn(stream));
  known.push_back({&worker.device(), stream, turn});
  return turn;
}

Status group_start() {
  static_cast<void>(group());  // its end tells of a group that the thread leaves open
  ++group_depth;
  return {};
}

Status group_simulate_end(float& microseconds) {
  Group& mine = group();
  if (group_depth == 0) return error(Code::invalid_usage, "epcclGroupSimulateEnd without epcclGroupStart");
  if (--group_depth > 0) return {};
  EndedGroup ended = mine.take();
  for (Job& job : ended.jobs) job.cancel();
  if (!ended.refused.ok()) return std::move(ended.refused).with_context("a call of this group was refused");
  if (!ended.jobs.empty())
    return {Code::invalid_usage, "the group makes or ends communicators: that cannot be simulated"};
  EPCCL_ASSIGN(const double seconds, predict_group(ended.items));
  microseconds = static_cast<float>(seconds * 1e6);
  return {};
}

Status group_end(const std::function<void()>& beside) {
  Group& mine = group();
  if (group_depth == 0) return error(Code::invalid_usage, "epcclGroupEnd without epcclGroupStart");
  if (--group_depth > 0) return {};
  if (mine.is_plain() && beside == nullptr) return run_plain(mine.take_plain());
  EndedGroup ended = mine.take();
  // A group of which one call is wrong does nothing at all.
  if (ended.refused.ok()) ended.refused = check_own_messages(ended.items);
  if (!ended.refused.ok()) {
    for (Job& job : ended.jobs) job.cancel();
    return std::move(ended.refused).with_context("a call of this group was refused");
  }
  Status status = run_jobs(std::move(ended.jobs));
  Status launched = launch(ended.items, std::move(ended.turns), beside);
  mine.keep_capacity(std::move(ended.items));
  return status.ok() || (status.code() == Code::in_progress && !launched.ok()) ? launched : status;
}

}  // namespace epccl::api
