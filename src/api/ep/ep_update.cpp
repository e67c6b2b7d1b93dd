// ep.h: a handle's update.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "api/device/device_calls.hpp"
#include "api/device/device_place.hpp"
#include "api/ep/ep_calls.hpp"
#include "api/ep/ep_capture.hpp"
#include "api/ep/ep_replay.hpp"
#include "api/groups/capturing.hpp"
#include "api/groups/first_call.hpp"
#include "api/handles/arguments.hpp"
#include "base/log.hpp"
#include "ep/handle/array_pieces.hpp"
#include "ep/kernels/captured_routing.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::api {
namespace {

using runtime::DeviceRooms;
using runtime::DeviceWorker;
using runtime::StagedCalls;

/// Tensors that receive a handle's counters.
struct Counters {
  Tensor expert_counters, expert_offsets, src_rank_counters, recv_total, dropped_counters, dropped;

  std::array<Tensor*, 6> all() {
    return {&expert_counters, &expert_offsets, &src_rank_counters, &recv_total, &dropped_counters, &dropped};
  }
};

Status check_size(const char* what, const Tensor& tensor, size_t size) {
  if (!tensor.given || tensor.rows() * tensor.columns() == size) return {};
  return error(Code::invalid_argument, "{} has {} elements: {} are needed", what,
               tensor.rows() * tensor.columns(), size);
}

Result<Counters> read_counters(const epcclEpLayoutInfo_t* given, const ep::Group& group, const Tensor& topk) {
  const epcclEpLayoutInfo_t defaults = EPCCL_EP_LAYOUT_INFO_INIT;
  EPCCL_ASSIGN(const epcclEpLayoutInfo_t info, read_struct("layout_info", given, defaults));
  Counters counters;
  EPCCL_ASSIGN(counters.expert_counters,
               read_tensor("expert_counters", info.expert_counters, false, 1, index_types));
  EPCCL_ASSIGN(counters.expert_offsets,
               read_tensor("expert_offsets", info.expert_offsets, false, 1, index_types));
  EPCCL_ASSIGN(counters.src_rank_counters,
               read_tensor("src_rank_counters", info.src_rank_counters, false, 1, index_types));
  EPCCL_ASSIGN(counters.recv_total,
               read_tensor("recv_total_counter", info.recv_total_counter, false, 1, index_types));
  EPCCL_ASSIGN(counters.dropped_counters,
               read_tensor("dropped_counters", info.dropped_counters, false, 1, index_types));
  EPCCL_ASSIGN(counters.dropped, read_tensor("dropped", info.dropped, false, 2, {epcclUint8}));
  const uint32_t experts = group.experts().count(group.rank());
  EPCCL_TRY(check_size("expert_counters", counters.expert_counters, experts));
  EPCCL_TRY(check_size("expert_offsets", counters.expert_offsets, experts));
  EPCCL_TRY(check_size("src_rank_counters", counters.src_rank_counters,
                       static_cast<size_t>(group.cluster().ranks())));
  EPCCL_TRY(check_size("recv_total_counter", counters.recv_total, 1));
  EPCCL_TRY(check_size("dropped_counters", counters.dropped_counters, experts));
  EPCCL_TRY(check_size("dropped", counters.dropped, topk.rows() * topk.columns()));
  return counters;
}

void put(const Tensor& tensor, size_t index, uint64_t value) {
  if (!tensor.given) return;
  if (tensor.datatype == epcclInt64)
    static_cast<int64_t*>(tensor.data)[index] = static_cast<int64_t>(value);
  else
    static_cast<int32_t*>(tensor.data)[index] = static_cast<int32_t>(value);
}

void write_counters(const ep::Handle& handle, const Counters& counters) {
  const ep::Group& group = handle.group();
  const ep::NodeSlots& slots = handle.node_slots();
  const uint32_t first = group.experts().first(group.rank()), capacity = handle.rules().capacity;
  for (uint32_t i = 0; i < group.experts().count(group.rank()); ++i) {
    const uint32_t entries = slots.entries(first + i),
                   kept = capacity > 0 ? std::min(entries, capacity) : entries;
    put(counters.expert_counters, i, kept);
    put(counters.expert_offsets, i, slots.by_expert() ? slots.zone_begin(first + i) : 0);
    put(counters.dropped_counters, i, entries - kept);
  }
  for (size_t source = 0; source < handle.sources().size(); ++source)
    put(counters.src_rank_counters, source, handle.sources()[source].rank_tokens[handle.local()]);
  put(counters.recv_total, 0, handle.slots());
  if (!counters.dropped.given) return;
  auto* out = static_cast<uint8_t*>(counters.dropped.data);
  std::fill_n(out, counters.dropped.rows() * counters.dropped.columns(), uint8_t{0});
  std::ranges::copy(handle.dropped(), out);
}

/// An update, checked.
struct Update {
  Tensor table;
  ep::TopK topk;
  Counters counters;
};

Result<Update> read_update(const EpHandle& target, const epcclEpTensor_t* topk_idx,
                           const epcclEpLayoutInfo_t* info) {
  Update update;
  EPCCL_ASSIGN(update.table, read_tensor("topk_idx", topk_idx, true, 2, index_types));
  const Tensor& table = update.table;
  if (table.rows() > UINT32_MAX || table.columns() > UINT32_MAX)
    return error(Code::invalid_argument, "topk_idx is [{}, {}]", table.rows(), table.columns());
  EPCCL_ASSIGN(update.counters, read_counters(info, *target.group->group, table));
  update.topk = {table.data, table.datatype == epcclInt64, static_cast<uint32_t>(table.rows()),
                 static_cast<uint32_t>(table.columns())};
  return update;
}

// What the calls after an update that was accepted go by.
void note_update(EpHandle& target, const ep::TopK& topk, bool by_kernels) {
  // A rank without tokens may not know K.
  target.topk_width = topk.tokens > 0 ? topk.k : ep::max_topk;
  target.tokens = topk.tokens;
  target.by_kernels = by_kernels;
  target.update_is_captured = false;
  if (const auto captured = target.captured()) captured->set_tokens(topk.tokens);
  if (const auto replayed = target.replayed()) replayed->set_tokens(topk.tokens);
}

Status run_update(ep::Handle& handle, const ep::TopK& topk, const Counters& counters, bool on_device,
                  Status& agreed) {
  EPCCL_TRY(handle.update(topk, on_device));
  agreed = handle.failure();
  if (agreed.ok()) write_counters(handle, counters);
  return {};
}

// Background work reads its own copy: the caller's table is free again when the call returns.
std::shared_ptr<std::vector<std::byte>> copy_of(const Tensor& table) {
  const auto* begin = static_cast<const std::byte*>(table.data);
  return std::make_shared<std::vector<std::byte>>(begin, begin + table.bytes);
}

Status update_on_host(EpHandle& target, Update update, epcclStream_t stream) {
  EPCCL_ASSIGN(device::HostStream * queue, find_stream(stream));
  std::shared_ptr<std::vector<std::byte>> copy;
  if (queue != nullptr) {
    copy = copy_of(update.table);
    update.topk.data = copy->data();
  }
  const auto work = [handle = target.handle, update = std::move(update), copy](Status& agreed) {
    return run_update(*handle, update.topk, update.counters, false, agreed);
  };
  return run_ep(target, queue, work);
}

// What goes wrong is told by who waits for the handle's calls: the caller may have gone on.
Status start(EpHandle& target, const DeviceWorker& worker, const EpWork& work) {
  return run_ep(target, &worker.stream(), work,
                target.started.add(worker.stream(), ep::StartedCalls::Counted::no));
}

// For the host: tensors of the GPU have places in pinned memory; those of the host are read now and written then.
struct UpdateOnHost {
  Update update;
  DeviceRooms::Borrowed pinned;
  std::vector<StagedCalls::Piece> inputs, outputs;
  std::shared_ptr<std::vector<std::byte>> copy;  // of a table in host memory

  static Result<UpdateOnHost> place(DeviceRooms& rooms, Update update) {
    UpdateOnHost placed;
    uint64_t bytes = 0;
    const auto place = [&](const Tensor& tensor, std::vector<StagedCalls::Piece>& pieces) {
      if (tensor.bytes == 0 || !is_gpu_memory(tensor.address)) return false;
      pieces.push_back({static_cast<std::byte*>(tensor.data), bytes, tensor.bytes});
      bytes += ep::whole_arrays(tensor.bytes);
      return true;
    };
    const bool table_there = place(update.table, placed.inputs);
    std::vector<std::pair<Tensor*, uint64_t>> moved;
    for (Tensor* tensor : update.counters.all())
      if (const uint64_t offset = bytes; place(*tensor, placed.outputs)) moved.emplace_back(tensor, offset);
    EPCCL_ASSIGN(placed.pinned, rooms.borrow(bytes));
    for (const auto& [tensor, offset] : moved) tensor->data = placed.pinned->data() + offset;
    if (!table_there) placed.copy = copy_of(update.table);
    update.topk.data = table_there ? placed.pinned->data() : placed.copy->data();
    placed.update = std::move(update);
    return placed;
  }

  /// `run`: whether it came to something.
  Status run(StagedCalls& staged, const std::function<Result<bool>(const ep::TopK& topk)>& run) const {
    EPCCL_TRY(staged.copy_pieces_in(inputs, pinned->data()));
    EPCCL_ASSIGN(const bool made, run(update.topk));
    return made ? staged.copy_pieces_out(outputs, pinned->data()) : Status{};
  }
};

/// `issued`: called when the call is under way.
template <typename Issued>
Status update_staged(runtime::OnDevice& on, EpHandle& target, Update update, bool by_queues,
                     epcclStream_t stream, const Issued& issued) {
  EPCCL_ASSIGN(UpdateOnHost placed, UpdateOnHost::place(*on.rooms, std::move(update)));
  EPCCL_ASSIGN(TurnPtr turn, on.worker->take_turn(stream));
  auto work = [handle = target.handle, worker = on.worker.get(), staged = on.staged.get(), turn,
               placed = std::move(placed), by_queues](Status& agreed) -> Status {
    EPCCL_TRY(worker->begun(*turn));
    return placed.run(*staged, [&](const ep::TopK& topk) -> Result<bool> {
      EPCCL_TRY(run_update(*handle, topk, placed.update.counters, by_queues, agreed));
      return agreed.ok();
    });
  };
  const FirstCall first(turn);
  turn = nullptr;  // the work holds it
  EPCCL_TRY(start(target, *on.worker, std::move(work)));
  issued();
  return first.wait();
}

// What kernels read and write: tensors of the GPU themselves; those of the host have places in pinned memory.
struct UpdateOnDevice {
  struct Bring {
    Tensor tensor;
    const std::byte* from;
  };
  DeviceRooms::Borrowed pinned;
  ep::RoutingOnDevice routing;
  std::vector<Bring> to_host;  // when the layout is there

  static Result<UpdateOnDevice> place(DeviceRooms& rooms, Update& update) {
    UpdateOnDevice placed;
    std::vector<Tensor*> tensors{&update.table};
    for (Tensor* tensor : update.counters.all()) tensors.push_back(tensor);
    uint64_t bytes = 0;
    for (const Tensor* tensor : tensors)
      if (!is_gpu_memory(tensor->address)) bytes += ep::whole_arrays(tensor->bytes);
    EPCCL_ASSIGN(placed.pinned, rooms.borrow(bytes));
    std::byte* next = placed.pinned->data();
    const auto address = [&](const Tensor& tensor) {
      if (tensor.bytes == 0 || is_gpu_memory(tensor.address)) return static_cast<std::byte*>(tensor.data);
      return std::exchange(next, next + ep::whole_arrays(tensor.bytes));
    };
    const Tensor& table = update.table;
    std::byte* const there = address(table);
    if (there != table.data) std::memcpy(there, table.data, table.bytes);
    placed.routing = {there, update.topk.wide, update.topk.tokens, update.topk.k, {}, nullptr};
    const auto written = [&](const Tensor& tensor) -> std::byte* {
      if (!tensor.given || tensor.bytes == 0) return nullptr;
      std::byte* const to = address(tensor);
      if (to != tensor.data) placed.to_host.push_back({tensor, to});
      return to;
    };
    const auto numbers = [&](const Tensor& tensor) {
      return device::kernels::CountersParameters::Numbers{written(tensor),
                                                          tensor.datatype == epcclInt64 ? 1U : 0U};
    };
    device::kernels::CountersParameters& counters = placed.routing.counters;
    counters.expert_counters = numbers(update.counters.expert_counters);
    counters.expert_offsets = numbers(update.counters.expert_offsets);
    counters.dropped_counters = numbers(update.counters.dropped_counters);
    counters.source_counters = numbers(update.counters.src_rank_counters);
    counters.total = numbers(update.counters.recv_total);
    placed.routing.dropped = reinterpret_cast<uint8_t*>(written(update.counters.dropped));
    return placed;
  }
};

// Static mode: the layout is made where the table is, and stays there.
template <typename Issued>
Status update_by_kernels(runtime::OnDevice& on, EpHandle& target, Update update,
                         const runtime::EngineChoice& choice, epcclStream_t stream, const Issued& issued) {
  EPCCL_ASSIGN(const auto layout, layout_of(target, *on.staged));
  EPCCL_ASSIGN(UpdateOnDevice placed, UpdateOnDevice::place(*on.rooms, update));
  EPCCL_ASSIGN(TurnPtr turn, on.worker->take_turn(stream));
  // The first one's ranks agree on the host; and what is brought to host memory a thread brings, for which the stream has to wait.
  if (can_queue_behind(*target.communicator()) && target.by_kernels && placed.to_host.empty())
    EPCCL_TRY(turn->queue_behind());
  auto work = [handle = target.handle, layout, worker = on.worker.get(), kernels = on.kernels.get(), choice,
               turn, placed = std::move(placed)](Status& agreed) -> Status {
    const runtime::QueuedBehind* const behind = turn->behind();
    if (behind == nullptr) EPCCL_TRY(worker->begun(*turn));
    const auto begun = kernels->begin(choice, behind);
    EPCCL_TRY(ep::update_by_kernels(*handle, placed.routing, layout, *kernels));
    agreed = handle->failure();
    if (!agreed.ok()) return {};
    for (const UpdateOnDevice::Bring& bring : placed.to_host)
      std::memcpy(bring.tensor.data, bring.from, bring.tensor.bytes);
    return {};
  };
  const FirstCall first(turn);
  turn = nullptr;  // the work holds it
  EPCCL_TRY(start(target, *on.worker, std::move(work)));
  issued();
  return first.wait();
}

// Kernels use the tensors themselves, whenever the graph runs.
Status capture_kernels(device::Device& device, EpHandle& target, Update& update, const std::string& text,
                       epcclStream_t stream) {
  EPCCL_ASSIGN(const CaptureOn capture, prepare_capture(device, target, text, stream));
  EPCCL_ASSIGN(const UpdateOnDevice placed, UpdateOnDevice::place(*capture.on->rooms, update));
  return run_ep(target, nullptr, [&](Status& agreed) {
    return ep::capture_update(*target.handle, placed.routing, capture.into, *capture.on->kernels, agreed);
  });
}

// A thread of the library makes the update that the call would make now.
Status capture_by_host(device::Device& device, runtime::OnDevice& on, EpHandle& target, const Update& update,
                       const std::string& text, epcclStream_t stream) {
  EPCCL_ASSIGN(auto routing, replayed_routing_of(device, target, text));
  StagedCalls* staged = on.staged.get();
  EPCCL_ASSIGN(UpdateOnHost placed, UpdateOnHost::place(*on.rooms, update));
  const CommPtr communicator = target.communicator();
  EPCCL_TRY(
      run_ep(target, nullptr, [&](Status& agreed) { return routing->agree_on_update(update.topk, agreed); }));
  EPCCL_ASSIGN(const runtime::EngineChoice choice, choose_maker(on, *target.group->group, true));
  const bool by_queues = communicator->cluster().nodes() > 1 && choice.engines;
  auto work = [routing, staged, placed = std::move(placed), by_queues] {
    return placed.run(*staged, [&](const ep::TopK& topk) -> Result<bool> {
      EPCCL_ASSIGN(const bool made, routing->update(topk, by_queues));
      if (made) write_counters(routing->handle(), placed.update.counters);
      return made;
    });
  };
  EPCCL_TRY(capture_replayed(device, communicator, text, std::move(work), stream));
  routing->set_tokens(update.topk.tokens);
  return {};
}

Status capture_update(device::Device& device, EpHandle& target, Update update, epcclStream_t stream) {
  const std::string text = "an update";
  std::vector<const Tensor*> tensors{&update.table};
  for (const Tensor* tensor : update.counters.all()) tensors.push_back(tensor);
  for (const Tensor* tensor : tensors)
    if (tensor->bytes > 0 && !is_gpu_memory(tensor->address))
      return not_capturable(
          text, fmt::format("{} is host memory, which the host would have to copy", tensor->name));
  EPCCL_ASSIGN(auto* on, target.communicator()->on_device(device));
  EPCCL_TRY(is_replayed(target, *on) ? capture_by_host(device, *on, target, update, text, stream)
                                     : capture_kernels(device, target, update, text, stream));
  target.tokens = update.topk.tokens;
  target.update_is_captured = true;
  return {};
}

Status update_on_device(device::Device& device, EpHandle& target, Update update, epcclStream_t stream) {
  EPCCL_ASSIGN(const bool captured, is_captured(device, stream));
  if (captured) return capture_update(device, target, std::move(update), stream);
  const ep::TopK topk = update.topk;
  const CommPtr communicator = target.communicator();
  EPCCL_ASSIGN(auto* on, communicator->on_device(device));
  target.device = &device;
  const bool is_static = target.handle->rules().max_topk > 0, is_across = communicator->cluster().nodes() > 1;
  EPCCL_ASSIGN(const runtime::EngineChoice choice, choose_maker(*on, *target.group->group, false));
  const bool by_kernels = is_static && choice.engines;
  log::info_once(log::coll, communicator->rank(), "ep layout on GPU {}: made by {} ({})", device.ordinal(),
                 by_kernels ? "kernels" : "the host", is_static ? choice.why : "not static mode");
  const auto issued = [&] { note_update(target, topk, by_kernels); };
  return by_kernels
             ? update_by_kernels(*on, target, std::move(update), choice, stream, issued)
             : update_staged(*on, target, std::move(update), is_across && choice.engines, stream, issued);
}

}  // namespace

Status update(EpHandle& target, const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* info,
              epcclStream_t stream) {
  EPCCL_ASSIGN(Update update, read_update(target, topk_idx, info));
  EPCCL_TRY(check_no_ep_in_group());
  std::vector<const Tensor*> results;
  for (const Tensor* tensor : update.counters.all()) results.push_back(tensor);
  EPCCL_ASSIGN(device::Device * device, device_of_update(target, update.table, results, stream));
  if (device != nullptr) return update_on_device(*device, target, std::move(update), stream);
  const ep::TopK topk = update.topk;
  EPCCL_TRY(update_on_host(target, std::move(update), stream));
  note_update(target, topk, false);
  return {};
}

}  // namespace epccl::api
