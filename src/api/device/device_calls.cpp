#include "api/device/device_calls.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "api/device/device_place.hpp"
#include "api/device/mappable.hpp"
#include "api/groups/capturing.hpp"
#include "api/groups/first_call.hpp"
#include "base/log.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/kernel_queue.hpp"

namespace epccl::api {
namespace {

using runtime::StagedCalls;

/// Whether the GPU's queues make the call; else it goes by way of host memory. Both are a line of the log.
bool engines_make_it(const Place& place, const runtime::Communicator& communicator, const std::string& text,
                     const runtime::EngineChoice& choice) {
  log::info_once(log::coll, communicator.rank(), "{} on GPU {}: {} ({})", text,
                 place.on->worker->device().ordinal(),
                 choice.engines ? choice.movers() : "staged through pinned host memory", choice.why);
  return choice.engines;
}

/// Of a call that is made so: queued behind what its stream had, where queues make all of it.
Status queue_behind(const Place& place, const runtime::Communicator& communicator, bool queues_make_it) {
  return queues_make_it && can_queue_behind(communicator) ? place.turn->queue_behind() : Status{};
}

/// What can be done of such a call before its turn; empty: nothing, where it may not be queued behind its stream.
template <typename Runner, typename CallType>
std::function<bool()> work_ahead(const Place& place, bool queues_make_it, Runner* runner,
                                 Status (Runner::*make)(const CallType&), const CallType& call) {
  if (!queues_make_it || !place.turn->may_be_behind()) return {};
  return [turn = place.turn.get(), engines = place.on->engines.get(), runner, make,
          call = CallType(call)]() mutable {
    call.behind = turn->behind();
    call.is_ahead = true;
    call.may_look_ahead = true;  // in its turn
    if (call.behind == nullptr) return false;
    static_cast<void>((runner->*make)(call));  // what is wrong is found again in its turn
    return engines->is_ahead();
  };
}

/// On the worker of the place's GPU, in the turn that `work` holds.
Status submit_at(Place place, CommPtr communicator, CollectiveWork work) {
  const FirstCall call(place.turn);
  Item item{std::move(communicator), &place.on->worker->stream(), std::move(work)};
  place = {};  // the item holds the turn
  Status issued = submit(std::move(item));
  return call.wait_if(std::move(issued));
}

/// Of a block, as much as a slice of all blocks has room for: whole units.
uint64_t part_of(const StagedCalls& staged, int blocks, uint64_t block_bytes, uint64_t unit) {
  const uint64_t fits = staged.slice_bytes() / static_cast<uint64_t>(std::max(blocks, 1)) / unit * unit;
  return std::min(std::max(fits, unit), block_bytes);
}

std::vector<StagedCalls::Piece> pieces_of(const void* buffer, const std::vector<uint64_t>& bytes,
                                          const std::vector<uint64_t>& offsets) {
  std::vector<StagedCalls::Piece> pieces;
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0) pieces.push_back({bytes_at(buffer) + offsets[i], offsets[i], bytes[i]});
  return pieces;
}

uint64_t extent_of(const std::vector<uint64_t>& bytes, const std::vector<uint64_t>& offsets) {
  uint64_t end = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0) end = std::max(end, offsets[i] + bytes[i]);
  return end;
}

/// Whether a graph's kernels and copies make a call of static sizes; else a thread of the library does at each run.
bool graph_makes_it(const runtime::Communicator& communicator, runtime::EngineUse use) {
  return communicator.cluster().nodes() == 1 && use != runtime::EngineUse::never;
}

Result<bool> graph_makes_it(device::Device& device, runtime::Communicator& communicator,
                            const runtime::CollectiveCall& call, const void* scalar) {
  if (call.what.bytes == 0) return true;
  if (scalar != nullptr || !graph_makes_it(communicator, call.engines)) return false;
  EPCCL_ASSIGN(const runtime::Communicator::OnDevice* on, communicator.on_device(device));
  return on->collectives->kernels_name_all(call);
}

/// Adds a call to the graph that `stream` is being captured into. The caller's thread does it: it meets the node, so in a group
/// of one thread for several ranks it comes at the group's end.
template <typename CallType>
Status capture(device::Device& device, CommPtr communicator, CallType call, const std::string& text,
               uint64_t bytes, void* stream,
               Status (*add)(const runtime::Communicator::OnDevice&, const CallType&)) {
  if (bytes == 0) return {};
  EPCCL_ASSIGN(runtime::Communicator::OnDevice * on, communicator->on_device(device));
  EPCCL_ASSIGN(std::shared_ptr<device::Queue> users, device.borrow_stream(stream));
  if (!device::cuda::has_kernels(*users)) return not_capturable(text, "this build has no CUDA kernels");
  EPCCL_TRY(communicator->prepare_captures(*on));
  log::info_once(log::coll, communicator->rank(), "{} on GPU {}: captured, copy engines", text,
                 device.ordinal());
  Item item;
  item.captured = {&device, stream, text};
  item.communicator = std::move(communicator);
  item.what = CollectiveWork{[on, users, call, add]() mutable {
                               call.capture = users.get();
                               return add(*on, call);
                             },
                             [] { return 0.0; }};
  return submit(std::move(item));
}

std::string kind_of(const std::optional<device::MemoryInfo>& memory) {
  return memory ? fmt::format("memory of GPU {}", memory->ordinal) : "host memory";
}

Status check_scalar(const device::Device& device, const void* scalar) {
  const auto memory = scalar != nullptr ? device::cuda_memory_at(scalar) : std::nullopt;
  if (!memory || memory->ordinal == device.ordinal()) return {};
  return error(Code::invalid_argument,
               "the operation's scalar {} is {}, but the buffers are memory of GPU {}", scalar,
               kind_of(memory), device.ordinal());
}

}  // namespace

Result<device::Device*> device_of(runtime::Communicator& communicator, std::span<const NamedBuffer> buffers,
                                  epcclStream_t stream) {
  if (!device::cuda_possible()) return static_cast<device::Device*>(nullptr);
  const NamedBuffer* first = nullptr;
  std::optional<device::MemoryInfo> found;
  for (const NamedBuffer& buffer : buffers) {
    if (buffer.address == nullptr) continue;
    auto memory = device::cuda_memory_at(buffer.address);
    if (first == nullptr || first->bytes == 0) {
      first = &buffer;
      found = memory;
    } else if (buffer.bytes > 0 &&
               (found.has_value() != memory.has_value() || (found && found->ordinal != memory->ordinal))) {
      return error(Code::invalid_argument, "{} {} is {}, but {} {} is {}", first->name, first->address,
                   kind_of(found), buffer.name, buffer.address, kind_of(memory));
    }
  }
  if (found && stream != nullptr && device::find_stream(stream) != nullptr)
    return error(Code::invalid_argument,
                 "{} {} is {}, but stream {} is one of epcclStreamCreate, for host memory", first->name,
                 first->address, kind_of(found), stream);
  if (found) return device::cuda_device(found->ordinal);
  // With nothing to move the stream alone tells.
  if (first == nullptr) return device_of_stream(communicator, stream);
  return static_cast<device::Device*>(nullptr);
}

Result<device::Device*> device_of_stream(runtime::Communicator& communicator, epcclStream_t stream) {
  device::Device* const none = nullptr;
  if (stream == nullptr || !device::cuda_possible() || device::find_stream(stream) != nullptr) return none;
  if (device::Device* known = communicator.device_in_use(); known != nullptr) return known;
  const auto current = device::current_cuda_device();
  return current ? device::cuda_device(*current) : none;
}

bool is_gpu_memory(const void* address) {
  return address != nullptr && device::cuda_possible() && device::cuda_memory_at(address).has_value();
}

Status need_host_memory(const char* what, const void* address) {
  if (address == nullptr || !device::cuda_possible()) return {};
  const auto memory = device::cuda_memory_at(address);
  if (!memory) return {};
  return error(Code::invalid_argument, "{} {} is memory of GPU {}: only host memory is possible there", what,
               address, memory->ordinal);
}

Status submit_on_device(device::Device& device, CommPtr communicator, runtime::AlltoallCall call,
                        void* stream) {
  const std::string text = fmt::format("alltoall count {} {}", call.count, call.datatype);
  EPCCL_ASSIGN(call.engines, communicator->gpu_engine_use());
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  const uint64_t bytes = call.block_bytes;
  if (captured && (bytes == 0 || graph_makes_it(*communicator, call.engines))) {
    return capture<runtime::AlltoallCall>(
        device, std::move(communicator), call, text, bytes, stream,
        [](const runtime::Communicator::OnDevice& on, const runtime::AlltoallCall& each) {
          return on.alltoall->alltoall(each);
        });
  }
  EPCCL_ASSIGN(runtime::Communicator::OnDevice * on, communicator->on_device(device));
  const int ranks = communicator->ranks();
  const runtime::EngineChoice choice = on->engines->choose(call.engines, call.block_bytes);
  EPCCL_TRY(on->engines->prepare_for(choice));
  MappableBuffers buffers;
  if (choice.engines) {
    const uint64_t all = static_cast<uint64_t>(ranks) * bytes;
    EPCCL_ASSIGN(buffers, MappableBuffers::make(*on, {call.input, all}, {call.output, all}));
  }
  EPCCL_ASSIGN(Place place, captured ? begun_place(*on) : take_place(device, communicator, stream));
  runtime::Communicator* target = communicator.get();
  const uint64_t element = call.count == 0 ? 1 : bytes / call.count;
  StagedCalls::Blocks blocks{bytes_at(call.input), bytes_at(call.output), ranks, ranks, call.block_bytes, 0};
  blocks.part_bytes = part_of(*place.on->staged, ranks, call.block_bytes, element);
  const bool engines = engines_make_it(place, *target, text, choice);
  EPCCL_TRY(queue_behind(place, *target, engines));
  auto work = [target, place, blocks, element, call, engines, buffers]() -> Status {
    if (engines)
      return buffers.run(*place.on, *place.turn, call, [&](const runtime::AlltoallCall& mappable) {
        return place.on->alltoall->alltoall(mappable);
      });
    return place.on->staged->run(
        *place.turn, blocks,
        [&](const std::byte* input, std::byte* output, uint64_t /*first*/, uint64_t part) {
          return target->alltoall(
              {input, output, part, part / element, call.datatype, runtime::EngineUse::never});
        });
  };
  if (captured) return capture_replayed(device, std::move(communicator), text, std::move(work), stream);
  CollectiveWork made{std::move(work),
                      [target, block = call.block_bytes] { return target->predict_alltoall(block); }};
  made.ahead = work_ahead(place, engines, on->alltoall.get(), &runtime::AlltoallRunner::alltoall, call);
  return submit_at(std::move(place), std::move(communicator), std::move(made));
}

Status submit_on_device(device::Device& device, CommPtr communicator, runtime::AlltoallvCall call,
                        void* stream) {
  EPCCL_ASSIGN(call.engines, communicator->gpu_engine_use());
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  EPCCL_ASSIGN(runtime::Communicator::OnDevice * on, communicator->on_device(device));
  // How much is moved is known when ranks have told each other.
  const runtime::EngineChoice choice = on->engines->choose(call.engines, 1);
  EPCCL_TRY(on->engines->prepare_for(choice));
  const bool engines = choice.engines;
  const uint64_t sent = extent_of(call.send_bytes, call.send_offsets),
                 received = extent_of(call.recv_bytes, call.recv_offsets), mean = call.mean();
  const auto inputs = pieces_of(call.input, call.send_bytes, call.send_offsets),
             outputs = pieces_of(call.output, call.recv_bytes, call.recv_offsets);
  MappableBuffers buffers;
  runtime::DeviceRooms::Borrowed input, output;
  if (engines) {
    EPCCL_ASSIGN(buffers,
                 MappableBuffers::make(*on, {call.input, sent, inputs}, {call.output, received, outputs}));
  } else {
    EPCCL_ASSIGN(input, on->rooms->borrow(sent));
    EPCCL_ASSIGN(output, on->rooms->borrow(received));
  }
  EPCCL_ASSIGN(Place place, captured ? begun_place(*on) : take_place(device, communicator, stream));
  runtime::Communicator* target = communicator.get();
  const std::string text = fmt::format("alltoallv {}", call.datatype);
  engines_make_it(place, *target, text, choice);
  EPCCL_TRY(queue_behind(place, *target, engines));
  auto work = [target, place, call = std::move(call), engines, buffers, inputs, outputs, input,
               output]() -> Status {
    if (engines)
      return buffers.run(*place.on, *place.turn, call, [&](const runtime::AlltoallvCall& mappable) {
        return place.on->alltoall->alltoallv(mappable);
      });
    return place.on->staged->run_whole(*place.turn, inputs, input->data(), outputs, output->data(),
                                       [&](const std::byte* from, std::byte* to) {
                                         runtime::AlltoallvCall staged = call;
                                         staged.input = from;
                                         staged.output = to;
                                         staged.engines = runtime::EngineUse::never;
                                         return target->alltoallv(staged);
                                       });
  };
  if (captured) return capture_replayed(device, std::move(communicator), text, std::move(work), stream);
  return submit_at(std::move(place), std::move(communicator),
                   {std::move(work), [target, mean] { return target->predict_alltoall(mean); }});
}

Status submit_on_device(device::Device& device, CommPtr communicator, runtime::CollectiveCall call,
                        const void* scalar, void* stream) {
  EPCCL_TRY(check_scalar(device, scalar));
  EPCCL_ASSIGN(call.engines, communicator->gpu_engine_use());
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  bool of_graph = false;
  if (captured) {
    EPCCL_ASSIGN(of_graph, graph_makes_it(device, *communicator, call, scalar));
  }
  if (of_graph) {
    const std::string text = call.text();
    const uint64_t bytes = call.what.bytes;
    return capture<runtime::CollectiveCall>(
        device, std::move(communicator), std::move(call), text, bytes, stream,
        [](const runtime::Communicator::OnDevice& on, const runtime::CollectiveCall& each) {
          return on.collectives->run(each);
        });
  }
  EPCCL_ASSIGN(runtime::Communicator::OnDevice * on, communicator->on_device(device));
  const topology::Cluster& cluster = communicator->cluster();
  int most = 1;  // blocks of a buffer of any rank: slices are the same everywhere
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    most = std::max({most, algorithms::input_blocks(cluster, call.what, rank),
                     algorithms::output_blocks(cluster, call.what, rank)});
  const int inputs = algorithms::input_blocks(cluster, call.what, communicator->rank()),
            outputs = algorithms::output_blocks(cluster, call.what, communicator->rank());
  const runtime::EngineChoice choice = on->collectives->choose_engines(call);
  EPCCL_TRY(on->engines->prepare_for(choice));
  MappableBuffers buffers;
  if (choice.engines) {
    const auto bytes = [&](int count) { return static_cast<uint64_t>(count) * call.what.bytes; };
    EPCCL_ASSIGN(buffers,
                 MappableBuffers::make(*on, {call.input, bytes(inputs)}, {call.output, bytes(outputs)}));
  }
  EPCCL_ASSIGN(Place place, captured ? begun_place(*on) : take_place(device, communicator, stream));
  runtime::Communicator* target = communicator.get();
  const StagedCalls::Blocks blocks{bytes_at(call.input),
                                   bytes_at(call.output),
                                   inputs,
                                   outputs,
                                   call.what.bytes,
                                   part_of(*place.on->staged, most, call.what.bytes, call.what.unit)};
  const bool engines = engines_make_it(place, *target, call.text(), choice);
  EPCCL_TRY(queue_behind(place, *target, engines && scalar == nullptr));
  auto work = [target, place, blocks, call, scalar, engines, buffers]() mutable -> Status {
    if (scalar != nullptr)
      EPCCL_TRY(place.on->staged->fetch(*place.turn, &call.reduction->scalar_bits, bytes_at(scalar),
                                        call.what.unit));
    if (engines)
      return buffers.run(*place.on, *place.turn, call, [&](const runtime::CollectiveCall& mappable) {
        return place.on->collectives->run(mappable);
      });
    return place.on->staged->run(
        *place.turn, blocks, [&](const std::byte* input, std::byte* output, uint64_t first, uint64_t bytes) {
          runtime::CollectiveCall slice = call;
          slice.what.bytes = bytes;
          slice.input = input;
          slice.output = output;
          slice.engines = runtime::EngineUse::never;
          if (bytes < call.what.bytes) slice.part = fmt::format(", {} bytes from {} on", bytes, first);
          return target->collective(slice);
        });
  };
  if (captured)
    return capture_replayed(device, std::move(communicator), call.text(), std::move(work), stream);
  CollectiveWork made{std::move(work), [target, call] { return target->predict_collective(call); }};
  made.ahead = work_ahead(place, engines && scalar == nullptr, on->collectives.get(),
                          &runtime::CollectiveRunner::run, call);
  return submit_at(std::move(place), std::move(communicator), std::move(made));
}

}  // namespace epccl::api
