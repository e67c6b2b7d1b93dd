#include "api/groups/group.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "api/groups/batches.hpp"
#include "api/groups/capturing.hpp"
#include "api/groups/concurrently.hpp"
#include "api/groups/first_call.hpp"
#include "api/groups/open_group.hpp"
#include "api/groups/simulate.hpp"
#include "api/groups/stream_runs.hpp"
#include "api/groups/stream_work.hpp"
#include "base/caught.hpp"
#include "base/threads_own.hpp"
#include "device/host/host_stream.hpp"

namespace epccl::api {
namespace {

Group& group() {
  return threads_own<Group>();
}

/// Jobs that the group's end waits for. The first that fails ends the others that can be interrupted: what they wait for may be the one
/// that failed.
class BlockingJobs {
 public:
  /// Without it a job is not run. It stays the caller's.
  void add(Job& job) {
    jobs_.push_back(&job);
    parts_.emplace_back([this, &job] {
      run(job);
      return Status{};
    });
  }
  /// What failed first.
  Status run() {
    Status thrown = caught([&] { return run_concurrently(std::move(parts_)); });
    if (thrown.ok()) return std::move(first_failure_);
    for (const Job* job : jobs_) job->end(thrown);  // none has run
    return thrown;
  }

 private:
  void run(const Job& job) {
    Status status = caught(std::cref(job.run));
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (!first_failure_.ok()) return;
    first_failure_ = std::move(status);
    for (const Job* each : jobs_) each->interrupt();
  }

  std::vector<Job*> jobs_;
  std::vector<std::function<Status()>> parts_;
  std::mutex mutex_;
  Status first_failure_;
};

/// Jobs that go on when the group has ended.
class BackgroundJobs {
 public:
  /// Takes what it runs, and shares it with the thread: what that lets go of when it is over nothing else holds.
  void add(Job& job) {
    works_.emplace_back([run = std::make_shared<std::function<Status()>>(std::move(job.run))] {
      static_cast<void>(caught(std::ref(*run)));
    });
  }
  /// in_progress, if there are any.
  Status start() {
    Status progress;
    for (std::function<void()>& work : works_) {
      run_in_background(std::exchange(work, {}));
      progress = Status(Code::in_progress, "");
    }
    return progress;
  }

 private:
  std::vector<std::function<void()>> works_;
};

// What is behind a job that has begun waits for it: each is run then, or ended.
Status run_jobs(std::vector<Job> jobs) {
  BlockingJobs blocking;
  BackgroundJobs background;
  Status ready = caught([&]() -> Status {
    for (Job& job : jobs)
      if (job.blocking)
        blocking.add(job);
      else
        background.add(job);
    return {};
  });
  if (!ready.ok()) {
    for (const Job& job : jobs) job.cancel();
    return ready;
  }
  for (const Job& job : jobs) job.begin();
  Status progress = background.start();
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

// What could not be queued is given up, and lets go of what waits for it. Where a stream does not wait for what another runs on its behalf,
// its call does.
void drop_unqueued(std::vector<StreamWork>& streams) {
  for (StreamWork& work : streams) {
    work.batches.clear();
    work.collectives.clear();
    work.end_of_batches.reset();
    for (StreamWork::Part& part : work.parts) part.arrival.give_up();
  }
  for (const StreamWork& work : streams)
    for (const StreamWork::Part& part : work.parts)
      if (part.end.valid()) part.end.wait();
}

// Of the streams whose batches the group's end waits for.
std::vector<Outcome> ends_of_batches(const std::vector<StreamWork>& streams) {
  std::vector<Outcome> ends;
  for (const StreamWork& work : streams)
    if (work.end_of_batches) ends.push_back(work.end_of_batches->outcome());
  return ends;
}

// The work of no stream, and the ends of what others run for it. The first error.
Status run_here(std::vector<StreamWork>& streams, const std::vector<Outcome>& ends) {
  Status first;
  for (StreamWork& work : streams)
    if (work.stream == nullptr)
      if (Status status = caught([&] { return run_inline(std::move(work)); }); first.ok())
        first = std::move(status);
  for (const Outcome& end : ends)
    if (Status status = caught([&] { return end.get(); }); first.ok()) first = std::move(status);
  return first;
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
  const std::vector<Outcome> ends = ends_of_batches(streams);
  Status queued = caught([&]() -> Status {
    enqueue(streams);
    return {};
  });
  if (!queued.ok()) {
    drop_unqueued(streams);
    turns.clear();
    for (const Outcome& end : ends) end.wait();
    wait_for_workers(streams);
    return queued;
  }
  if (beside != nullptr) beside();
  const Status held = caught([&] { return hold(turns); });
  const std::vector<FirstCall> first_calls = first_calls_of(turns);
  turns.clear();
  Status first = run_here(streams, ends);
  if (!held.ok()) first = held;
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
  batches.push_back({std::move(messages.communicator), {}, std::move(messages.operations)});
  batches.front().ticket = Ticket(batches.front().communicator);
  return run_batches(batches);
}

}  // namespace

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
