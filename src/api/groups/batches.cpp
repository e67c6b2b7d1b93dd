#include "api/groups/batches.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "api/groups/message_moves.hpp"
#include "base/caught.hpp"

namespace epccl::api {
namespace {

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
void run_in_turns(std::vector<Batch>& batches, size_t at, Ways& ways, Status& skipped) {
  if (at == batches.size()) return start_and_finish(batches, ways);
  bool has_turn = false;
  const std::function<Status()> turn = [&] {
    has_turn = true;
    ways[at].emplace(*batches[at].communicator);
    run_in_turns(batches, at + 1, ways, skipped);
    return batches[at].outcome;
  };
  Status status = batches[at].communicator->run(batches[at].ticket.use(), turn);
  if (has_turn) {
    batches[at].outcome = std::move(status);
    return;
  }
  // This one had failed before. The others have their turns to take, and their ranks wait for them.
  if (skipped.ok()) skipped = std::move(status);
  batches.erase(batches.begin() + static_cast<std::ptrdiff_t>(at));
  ways.pop_back();
  run_in_turns(batches, at, ways, skipped);
}

}  // namespace

Status run_batches(std::vector<Batch>& batches) {
  for (Batch& batch : batches)
    for (const Outcome& arrival : batch.arrivals) EPCCL_TRY(arrival.get());
  std::vector<Teller> ends;
  for (Batch& batch : batches)
    if (batch.end) ends.push_back(*std::exchange(batch.end, {}));
  Ways ways(batches.size());
  Status skipped, first;
  run_in_turns(batches, 0, ways, skipped);
  for (Batch& batch : batches)
    if (first.ok()) first = std::move(batch.outcome);
  if (first.ok()) first = std::move(skipped);
  for (Teller& end : ends) end.tell(first);
  return first;
}

}  // namespace epccl::api
