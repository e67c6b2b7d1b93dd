#include "api/groups/stream_runs.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "api/groups/batches.hpp"
#include "api/groups/concurrently.hpp"
#include "device/host/host_stream.hpp"
#include "runtime/engines/graph_writes.hpp"

namespace epccl::api {
namespace {

/// What a group does of one communicator on the calling thread's behalf.
struct CommCalls {
  CommPtr communicator;
  std::vector<Batch> batches;
  std::vector<QueuedCollective> collectives;

  Status run(runtime::GraphWrites& writes, size_t number) {
    runtime::GraphWrites::Lane here(writes, number);
    Status first = batches.empty() ? Status{} : run_batches(batches);
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
    for (QueuedCollective& collective : collectives) stream.enqueue(std::move(collective.run));
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

}  // namespace

void enqueue(std::vector<StreamWork>& streams) {
  for (StreamWork& work : streams)
    for (StreamWork::Part& part : work.parts)
      work.stream->enqueue([arrival = std::make_shared<Teller>(std::move(part.arrival))] {
        arrival->tell({});
        return Status{};
      });
  for (StreamWork& work : streams)
    if (work.stream != nullptr && !work.batches.empty())
      work.stream->enqueue([shared = std::make_shared<std::vector<Batch>>(std::move(work.batches)),
                            told = std::make_shared<std::optional<Teller>>(std::move(work.end_of_batches))] {
        Status status = run_batches(*shared);
        if (*told) (*told)->tell(status);
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
  if (work.collectives.empty()) return run_batches(work.batches);
  if (work.batches.empty() && work.collectives.size() == 1) return work.collectives.front().run();
  return run_beside_each_other(std::move(work));
}

}  // namespace epccl::api
