// Calls of one communicator that become part of a graph: while the stream is captured, ranks meet as in every call; then each puts
// its plan into the graph, and nothing has run. A replay needs no thread of the host, but one looks after it (replay_watch.hpp).
#pragma once

#include <memory>
#include <vector>

#include "base/status.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/queues/graph_room.hpp"
#include "runtime/queues/graph_writer.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class CapturedCalls {
 public:
  /// Allocates.
  static Result<std::unique_ptr<CapturedCalls>> open(device::Device& device, const topology::Cluster& cluster,
                                                     transports::NodeMemory& node,
                                                     transports::PeerMemory& peers);
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;
  /// Replays that come yet do not wait. Graphs keep what they use.
  ~CapturedCalls();

  /// What peers have to know of this rank in such a call.
  const CallDevice& on() const { return on_; }
  const std::shared_ptr<GraphRoom>& room() const { return room_; }

  /// When all ranks of the node have met in the call.
  Status add(const Call& call, const QueueProgram& program, const Movers& movers);
  /// The same of a call that is kernels over peers' memory. The graph keeps `kept`, too.
  Status add(const Call& call, const ChainWork& work, std::shared_ptr<const void> kept);

  /// The host makes call `number` in each replay; `kept` is the graph's. Any thread.
  Status add(uint64_t number, GraphWriter::Half half, std::shared_ptr<const void> kept,
             device::Queue& stream);

  /// Where this process finds a buffer of another rank, for as long as the graph that the next add() writes into may use it.
  Result<std::byte*> address_of(int local, const transports::BufferRef& buffer);

 private:
  CapturedCalls(std::shared_ptr<GraphRoom> room, const topology::Cluster& cluster,
                transports::NodeMemory& node, transports::PeerMemory& peers);
  /// Of all ranks of the node, by local position, and what keeps them.
  struct Rooms {
    std::vector<std::byte*> addresses;
    std::vector<std::shared_ptr<const void>> kept;
  };
  Result<std::shared_ptr<const Rooms>> find_rooms(const Call& call);
  Result<Rooms> find_rooms_anew(const Call& call);
  Status check_shared(const transports::BufferRef& room) const;
  Result<GraphRoom::Found> find(int local, const transports::BufferRef& buffer);
  std::shared_ptr<const void> kept_by_graph(std::shared_ptr<const void> kept);
  Result<QueueCall> find_buffers(const Call& call, const QueueProgram& program,
                                 const std::vector<std::byte*>& rooms);

  const std::shared_ptr<GraphRoom> room_;
  transports::NodeMemory& node_;
  const CallDevice on_;
  GraphWriter writer_;
  std::shared_ptr<const Rooms> rooms_;                     // null: not known yet
  std::vector<std::shared_ptr<const void>> peers_memory_;  // of the call that is to be added
};

}  // namespace epccl::runtime
