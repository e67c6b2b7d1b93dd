#include "api/groups/stream_work.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace epccl::api {
namespace {

/// Who runs the sends and receives of a communicator: a stream, or, null, the thread that ends the group.
struct Runner {
  CommPtr communicator;
  device::HostStream* stream;
  bool for_gpu;
};

// The thread that makes those of GPU memory takes the others, too; else the calling thread, where it has any, or the first stream.
// Apart, they would be numbered in another order than they were issued in, and could wait for each other across ranks.
std::vector<Runner> choose_runners(const std::vector<Item>& items) {
  std::vector<Runner> runners;
  for (const Item& item : items) {
    const auto* operation = std::get_if<runtime::P2pOperation>(&item.what);
    if (operation == nullptr) continue;
    const bool for_gpu = operation->gpu != nullptr;
    const auto known = std::ranges::find(runners, item.communicator, &Runner::communicator);
    if (known == runners.end())
      runners.push_back({item.communicator, item.stream, for_gpu});
    else if (!known->for_gpu && (for_gpu || item.stream == nullptr))
      *known = {item.communicator, item.stream, for_gpu};
  }
  return runners;
}

class Sorter {
 public:
  explicit Sorter(size_t items) : items_(items) {}

  StreamWork& of(device::HostStream* stream) {
    auto found = std::ranges::find(streams_, stream, &StreamWork::stream);
    return found != streams_.end() ? *found : streams_.emplace_back(StreamWork{stream, {}, {}});
  }

  Batch& batch_of(const Runner& runner) {
    auto& batches = of(runner.stream).batches;
    const auto known = std::ranges::find(batches, runner.communicator, &Batch::communicator);
    if (known != batches.end()) return *known;
    Batch& batch = batches.emplace_back(Batch{runner.communicator, {}, {}});
    batch.operations.reserve(items_);
    return batch;
  }

  // `stream` has a part in the runner's batch.
  void take_part(device::HostStream* stream, const Runner& runner) {
    auto& parts = of(stream).parts;
    if (std::ranges::find(parts, runner.communicator, &StreamWork::Part::communicator) != parts.end()) return;
    Batch& batch = batch_of(runner);
    if (!batch.end) {
      batch.end.emplace();
      ends_.emplace_back(&*batch.communicator, batch.end->outcome());
    }
    const auto end = std::ranges::find(ends_, &*runner.communicator, &Ends::value_type::first);
    StreamWork::Part part{
        runner.communicator, {}, end->second, runner.stream != nullptr ? runner.stream->watchers() : nullptr};
    batch.arrivals.push_back(part.arrival.outcome());
    of(stream).parts.push_back(std::move(part));
  }

  std::vector<StreamWork> take() { return std::move(streams_); }
  std::vector<StreamWork>& streams() { return streams_; }

 private:
  using Ends = std::vector<std::pair<runtime::Communicator*, Outcome>>;

  const size_t items_;
  std::vector<StreamWork> streams_;
  Ends ends_;
};

/// A collective that runs in its turn, or, where it is not even queued, gives that back.
class IssuedCollective {
 public:
  IssuedCollective(CommPtr communicator, CollectiveWork work)
      : communicator_(std::move(communicator)), work_(std::move(work)) {}

  void take_ticket() { ticket_ = Ticket(communicator_); }
  Status run() {
    Status status = communicator_->run(ticket_.use(), work_.run, work_.timeout_seconds);
    // What the work holds is released before anybody is told that it is over.
    work_.run = nullptr;
    communicator_.reset();
    return work_.conclude ? work_.conclude(std::move(status)) : status;
  }

 private:
  CommPtr communicator_;
  CollectiveWork work_;
  Ticket ticket_;
};

}  // namespace

QueuedCollective queued_collective(Item item) {
  auto work = std::get<CollectiveWork>(std::move(item.what));
  QueuedCollective call{item.communicator, {}, item.captured.has_value()};
  if (item.captured && !item.captured->meets) {
    call.run = std::move(work.run);
    return call;
  }
  const auto issued = std::make_shared<IssuedCollective>(std::move(item.communicator), std::move(work));
  call.run = [issued] { return issued->run(); };
  issued->take_ticket();
  return call;
}

Status check_own_messages(const std::vector<Item>& items) {
  std::map<runtime::Communicator*, std::vector<runtime::P2pOperation>> own;
  for (const Item& item : items) {
    const auto* const operation = std::get_if<runtime::P2pOperation>(&item.what);
    if (operation != nullptr && operation->peer == item.communicator->rank())
      own[item.communicator.get()].push_back(*operation);
  }
  for (const auto& [communicator, operations] : own) EPCCL_TRY(communicator->p2p().check_own(operations));
  return {};
}

std::vector<StreamWork> sort_by_stream(std::vector<Item>& items) {
  Sorter sorter(items.size());
  const std::vector<Runner> runners = choose_runners(items);
  for (Item& item : items) {
    auto* operation = std::get_if<runtime::P2pOperation>(&item.what);
    if (operation == nullptr) continue;
    const Runner& runner = *std::ranges::find(runners, item.communicator, &Runner::communicator);
    if (item.stream != nullptr && item.stream != runner.stream) sorter.take_part(item.stream, runner);
    if (item.stream == nullptr && runner.stream != nullptr && operation->bytes > 0) {
      StreamWork& work = sorter.of(runner.stream);
      if (!work.end_of_batches) work.end_of_batches.emplace();
    }
    sorter.batch_of(runner).operations.push_back(std::move(*operation));
  }
  for (StreamWork& work : sorter.streams())
    for (Batch& batch : work.batches) batch.ticket = Ticket(batch.communicator);
  for (Item& item : items) {
    if (std::holds_alternative<runtime::P2pOperation>(item.what)) continue;
    StreamWork& work = sorter.of(item.stream);
    work.collectives.push_back(queued_collective(std::move(item)));
  }
  items.clear();
  return sorter.take();
}

}  // namespace epccl::api
