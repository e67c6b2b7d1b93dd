#include "runtime/engines/captured_calls.hpp"

#include <tuple>
#include <utility>

#include "device/held_streams.hpp"
#include "runtime/engines/graph_writes.hpp"

namespace epccl::runtime {
namespace {

std::string cannot_map(int local) {
  return fmt::format("memory of local rank {} on a GPU cannot be mapped by other processes", local);
}

}  // namespace

Result<std::unique_ptr<CapturedCalls>> CapturedCalls::open(device::Device& device,
                                                           const topology::Cluster& cluster,
                                                           transports::NodeMemory& node,
                                                           transports::PeerMemory& peers) {
  // Over several nodes the host makes all calls.
  const bool one_node = cluster.nodes() == 1;
  EPCCL_ASSIGN(auto room, GraphRoom::make(device, node.local_size(),
                                          one_node ? node.segment().spec().scratch_bytes : 0));
  return std::unique_ptr<CapturedCalls>(
      new CapturedCalls(std::move(room), cluster, node, peers));  // private constructor
}

CapturedCalls::CapturedCalls(std::shared_ptr<GraphRoom> room, const topology::Cluster& cluster,
                             transports::NodeMemory& node, transports::PeerMemory& peers)
    : room_(std::move(room)),
      node_(node),
      on_{&room_->device(), &peers, describe_on(peers, room_->memory(), room_->bytes())},
      writer_(room_, cluster, node.local(), node.local_size()) {}

CapturedCalls::~CapturedCalls() {
  room_->give_up();
  device::HeldStreams::retry();
  room_->device().let_go();
}

// What graphs have kept that are gone ends first: a program may capture again and again.
Status CapturedCalls::add(const Call& call, const QueueProgram& program, const Movers& movers) {
  room_->device().let_go();
  EPCCL_ASSIGN(const auto rooms, find_rooms(call));
  EPCCL_ASSIGN(QueueCall queued, find_buffers(call, program, rooms->addresses));
  queued.movers = movers;
  const auto kept = kept_by_graph(nullptr);
  return GraphWrites::run(
      [&] { return writer_.write(program, queued, rooms->addresses, kept, *call.capture); });
}

Status CapturedCalls::add(const Call& call, const ChainWork& work, std::shared_ptr<const void> kept) {
  room_->device().let_go();
  EPCCL_ASSIGN(const auto rooms, find_rooms(call));
  const auto all = kept_by_graph(std::move(kept));
  return GraphWrites::run(
      [&] { return writer_.write(work, call.sequence, rooms->addresses, all, *call.capture); });
}

Status CapturedCalls::add(uint64_t number, GraphWriter::Half half, std::shared_ptr<const void> kept,
                          device::Queue& stream) {
  using All = std::pair<std::shared_ptr<GraphRoom>, std::shared_ptr<const void>>;
  const auto all = std::make_shared<All>(room_, std::move(kept));
  return GraphWrites::run([&] { return writer_.write(number, half, all, stream); });
}

std::shared_ptr<const void> CapturedCalls::kept_by_graph(std::shared_ptr<const void> kept) {
  using All = std::tuple<std::shared_ptr<const Rooms>, decltype(peers_memory_), std::shared_ptr<const void>>;
  return std::make_shared<All>(rooms_, std::exchange(peers_memory_, {}), std::move(kept));
}

// They are found at the first call, and the same ever after; from now on reports know this one.
Result<std::shared_ptr<const CapturedCalls::Rooms>> CapturedCalls::find_rooms(const Call& call) {
  if (rooms_ == nullptr) {
    EPCCL_ASSIGN(Rooms found, find_rooms_anew(call));
    rooms_ = std::make_shared<const Rooms>(std::move(found));
  }
  room_->name_call(call.sequence & device::kernels::pass_value_mask, std::string(call.text));
  return rooms_;
}

Result<CapturedCalls::Rooms> CapturedCalls::find_rooms_anew(const Call& call) {
  Rooms rooms;
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::BufferRef& buffer = node_.call(local, call.sequence).scratch;
    if (local == node_.local()) EPCCL_TRY(check_shared(buffer));
    if (node_.is_of_this_process(local)) {
      auto room = GraphRoom::at(reinterpret_cast<const void*>(buffer.address));
      if (room == nullptr)
        return error(Code::remote_error, "the memory of a rank of this process for captured calls is gone");
      rooms.kept.push_back(std::move(room));
    }
    EPCCL_ASSIGN(const GraphRoom::Found found, find(local, buffer));
    rooms.addresses.push_back(found.address);
    rooms.kept.push_back(found.mapping);
  }
  return rooms;
}

// Peers find that they cannot map it. This rank's call fails as theirs, and only here it can be said why.
Status CapturedCalls::check_shared(const transports::BufferRef& room) const {
  if (room.has_memory != 0 || node_.is_one_process()) return {};
  return room_->device().can_export(room_->memory(), room_->bytes()).with_context(cannot_map(node_.local()));
}

Result<GraphRoom::Found> CapturedCalls::find(int local, const transports::BufferRef& buffer) {
  if (buffer.has_memory == 0 && !node_.is_of_this_process(local))
    return Status(Code::device_error, cannot_map(local));
  if (local == node_.local() || buffer.has_memory == 0)
    return GraphRoom::Found{reinterpret_cast<std::byte*>(buffer.address), nullptr};  // of this process
  return room_->find(local, buffer.memory, buffer.bytes);
}

Result<std::byte*> CapturedCalls::address_of(int local, const transports::BufferRef& buffer) {
  EPCCL_ASSIGN(GraphRoom::Found found, find(local, buffer));
  peers_memory_.push_back(std::move(found.mapping));
  return found.address;
}

Result<QueueCall> CapturedCalls::find_buffers(const Call& call, const QueueProgram& program,
                                              const std::vector<std::byte*>& rooms) {
  QueueCall queued{call.sequence, std::string(call.text), {}, call.reduction, {}};
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::CallRecord& record = node_.call(local, call.sequence);
    const auto& used = program.uses[static_cast<size_t>(local)];
    std::byte* const room = rooms[static_cast<size_t>(local)];
    std::array<std::byte*, 3> buffers{nullptr, nullptr, room_->scratch_in(room)};
    if (local == node_.local()) {
      // Input is only read: the plan's verifier holds builders to that.
      buffers[0] = static_cast<std::byte*>(const_cast<void*>(call.input));
      buffers[1] = static_cast<std::byte*>(call.output);
    } else {
      if (used[0]) {
        EPCCL_ASSIGN(buffers[0], address_of(local, record.inputs[0]));
      }
      if (used[1]) {
        EPCCL_ASSIGN(buffers[1], address_of(local, record.outputs[0]));
      }
    }
    queued.buffers.push_back(buffers);
  }
  return queued;
}

}  // namespace epccl::runtime
