#include "api/group.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace epccl::api {
namespace {

struct Group {
  int depth = 0;
  std::vector<Item> items;
  Status refused;
};

Group& group() {
  thread_local Group value;
  return value;
}

/// The sends and receives of one communicator in one group.
struct Batch {
  CommPtr communicator;
  uint64_t ticket = 0;
  std::vector<runtime::P2pOperation> operations;
};

// Progresses several communicators' batches side by side: ranks may have issued them in different orders, so none may
// wait for another.
Status progress_batches(const std::vector<Batch>& batches) {
  std::vector<runtime::Communicator*> open;
  for (const Batch& batch : batches) open.push_back(batch.communicator.get());
  for (auto* communicator : open) communicator->waiter().begin(communicator->cluster().nodes() > 1);
  const auto sweep = [&]() -> Result<bool> {
    bool moved = false;
    for (auto* communicator : open) {
      EPCCL_ASSIGN(const bool one, communicator->p2p().progress());
      if (one) communicator->waiter().moved();
      moved |= one;
    }
    std::erase_if(open, [](auto* communicator) { return communicator->p2p().done(); });
    return moved;
  };
  while (!open.empty()) {
    EPCCL_ASSIGN(const bool moved, sweep());
    if (moved || open.empty()) continue;
    runtime::Communicator& first = *open.front();
    runtime::P2p& p2p = first.p2p();
    if (open.size() > 1) usleep(20);  // nobody can sleep on several communicators' bells at once
    Status swept;
    const auto again = [&] {
      auto result = sweep();
      const bool value = !result.ok() || *result;
      swept = std::move(result).take_status();
      return value;
    };
    EPCCL_TRY(
        first.waiter().idle([] { return transports::SleepFor{}; }, p2p.network_pending(), again,
                            [&p2p] {
                              return runtime::Waiter::Situation{0, "send/recv group", p2p.waiting_text()};
                            }));
    EPCCL_TRY(std::move(swept));
  }
  return {};
}

// Takes each communicator's turn, the one inside the other, then moves all of them.
Status run_batches(std::vector<Batch>& batches, size_t at) {
  if (at == batches.size()) {
    for (Batch& batch : batches) EPCCL_TRY(batch.communicator->p2p().start(std::move(batch.operations)));
    return progress_batches(batches);
  }
  return batches[at].communicator->run(batches[at].ticket,
                                       [&batches, at] { return run_batches(batches, at + 1); });
}

Status run_p2p(device::HostStream* stream, std::vector<Batch> batches) {
  if (batches.empty()) return {};
  for (Batch& batch : batches) batch.ticket = batch.communicator->take_ticket();
  if (stream == nullptr) return run_batches(batches, 0);
  stream->enqueue([shared = std::make_shared<std::vector<Batch>>(std::move(batches))] {
    return run_batches(*shared, 0);
  });
  return {};
}

Status run_collective(Item item) {
  auto work = std::get<std::function<Status()>>(std::move(item.what));
  const uint64_t ticket = item.communicator->take_ticket();
  auto run = [communicator = std::move(item.communicator), ticket, work = std::move(work),
              timeout = item.timeout_seconds, conclude = std::move(item.conclude)]() mutable {
    Status status = communicator->run(ticket, work, timeout);
    // What the work holds is released before anybody is told that it is over.
    work = nullptr;
    communicator.reset();
    return conclude ? conclude(std::move(status)) : status;
  };
  if (item.stream == nullptr) return run();
  item.stream->enqueue(std::move(run));
  return {};
}

Status launch(std::vector<Item> items) {
  // Sends and receives first, all at once on each stream; collectives after them in order.
  std::vector<std::pair<device::HostStream*, std::vector<Batch>>> streams;
  std::vector<Item> collectives;
  for (Item& item : items) {
    auto* operation = std::get_if<runtime::P2pOperation>(&item.what);
    if (operation == nullptr) {
      collectives.push_back(std::move(item));
      continue;
    }
    auto stream = std::ranges::find(streams, item.stream, [](const auto& entry) { return entry.first; });
    if (stream == streams.end()) stream = streams.insert(streams.end(), {item.stream, {}});
    auto& batches = stream->second;
    auto batch = std::ranges::find(batches, item.communicator, &Batch::communicator);
    if (batch == batches.end()) batch = batches.insert(batches.end(), Batch{item.communicator, 0, {}});
    batch->operations.push_back(std::move(*operation));
  }
  Status first;
  for (auto& [stream, batches] : streams)
    if (Status status = run_p2p(stream, std::move(batches)); first.ok()) first = std::move(status);
  for (Item& item : collectives)
    if (Status status = run_collective(std::move(item)); first.ok()) first = std::move(status);
  return first;
}

}  // namespace

Status submit(Item item) {
  if (group().depth > 0) {
    group().items.push_back(std::move(item));
    return {};
  }
  std::vector<Item> items;
  items.push_back(std::move(item));
  return launch(std::move(items));
}

Status refuse(Status status) {
  if (group().depth > 0 && group().refused.ok()) group().refused = status;
  return status;
}

bool in_group() {
  return group().depth > 0;
}

Status group_start() {
  ++group().depth;
  return {};
}

Status group_end() {
  Group& mine = group();
  if (mine.depth == 0) return error(Code::invalid_usage, "epcclGroupEnd without epcclGroupStart");
  if (--mine.depth > 0) return {};
  std::vector<Item> items = std::exchange(mine.items, {});
  Status refused = std::exchange(mine.refused, {});
  // A group of which one call is wrong does nothing at all.
  if (!refused.ok()) return std::move(refused).with_context("a call of this group was refused");
  return launch(std::move(items));
}

}  // namespace epccl::api
