#include "runtime/comm/captured_calls.hpp"

#include "device/held_streams.hpp"
#include "runtime/comm/graph_writes.hpp"

namespace epccl::runtime {

Result<std::unique_ptr<CapturedCalls>> CapturedCalls::open(device::Device& device,
                                                           const topology::Cluster& cluster,
                                                           transports::NodeMemory& node) {
  // Over several nodes the host makes all calls.
  const bool one_node = cluster.nodes() == 1;
  EPCCL_ASSIGN(auto room, GraphRoom::make(device, node.local_size(),
                                          one_node ? node.segment().spec().scratch_bytes : 0));
  return std::unique_ptr<CapturedCalls>(
      new CapturedCalls(std::move(room), cluster, node));  // private constructor
}

CapturedCalls::CapturedCalls(std::shared_ptr<GraphRoom> room, const topology::Cluster& cluster,
                             transports::NodeMemory& node)
    : room_(std::move(room)),
      node_(node),
      on_{&room_->device(), describe_on(room_->device(), room_->memory(), room_->bytes())},
      writer_(room_, cluster, node.local(), node.local_size()) {}

CapturedCalls::~CapturedCalls() {
  room_->give_up();
  device::HeldStreams::retry();
  room_->device().let_go();
}

Status CapturedCalls::add(const Call& call, const QueueProgram& program, const Movers& movers) {
  EPCCL_ASSIGN(const std::vector<std::byte*> rooms, find_rooms(call));
  EPCCL_ASSIGN(QueueCall queued, find_buffers(call, program, rooms));
  queued.movers = movers;
  return GraphWrites::run([&] { return writer_.write(program, queued, rooms, rooms_here_, *call.capture); });
}

Status CapturedCalls::add(const Call& call, const ChainWork& work, std::shared_ptr<const void> kept) {
  EPCCL_ASSIGN(const std::vector<std::byte*> rooms, find_rooms(call));
  using All = std::pair<decltype(rooms_here_), std::shared_ptr<const void>>;
  const auto all = std::make_shared<All>(rooms_here_, std::move(kept));
  return GraphWrites::run([&] { return writer_.write(work, call.sequence, rooms, all, *call.capture); });
}

Status CapturedCalls::add(uint64_t number, GraphWriter::Half half, std::shared_ptr<const void> kept,
                          device::Queue& stream) {
  using All = std::pair<std::shared_ptr<GraphRoom>, std::shared_ptr<const void>>;
  const auto all = std::make_shared<All>(room_, std::move(kept));
  return GraphWrites::run([&] { return writer_.write(number, half, all, stream); });
}

// Of all ranks of the node; from now on reports know the call.
Result<std::vector<std::byte*>> CapturedCalls::find_rooms(const Call& call) {
  if (rooms_here_ == nullptr) EPCCL_TRY(find_rooms_here(call));
  std::vector<std::byte*> rooms;
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::BufferRef& room = node_.call(local, call.sequence).scratch;
    EPCCL_ASSIGN(std::byte * address, address_of(local, room));
    rooms.push_back(address);
  }
  room_->name_call(call.sequence & device::cuda::pass_value_mask, call.text);
  return rooms;
}

// At the first call: they are the same ever after.
Status CapturedCalls::find_rooms_here(const Call& call) {
  auto found = std::make_shared<std::vector<std::shared_ptr<GraphRoom>>>();
  for (int local = 0; local < node_.local_size(); ++local) {
    if (node_.pid(local) != node_.pid(node_.local())) continue;
    const auto* memory = reinterpret_cast<const void*>(node_.call(local, call.sequence).scratch.address);
    auto room = GraphRoom::at(memory);
    if (room == nullptr)
      return error(Code::remote_error, "the memory of a rank of this process for captured calls is gone");
    found->push_back(std::move(room));
  }
  rooms_here_ = std::move(found);
  return {};
}

Result<std::byte*> CapturedCalls::address_of(int local, const transports::BufferRef& buffer) {
  if (local == node_.local() || buffer.has_memory == 0)
    return reinterpret_cast<std::byte*>(buffer.address);  // of this process
  return room_->address_of(local, buffer.memory, buffer.bytes);
}

Result<QueueCall> CapturedCalls::find_buffers(const Call& call, const QueueProgram& program,
                                              const std::vector<std::byte*>& rooms) {
  QueueCall queued{call.sequence, call.text, {}, call.reduction, {}};
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
