// ep.h: a handle's update.
#include <algorithm>
#include <array>
#include <utility>

#include "api/arguments.hpp"
#include "api/device_calls.hpp"
#include "api/ep_calls.hpp"

namespace epccl::api {
namespace {

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

Status run_update(ep::Handle& handle, const ep::TopK& topk, const Counters& counters, Status& agreed) {
  EPCCL_TRY(handle.update(topk));
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
    return run_update(*handle, update.topk, update.counters, agreed);
  };
  return run_ep(target.communicator(), queue, target.handle->group().options().timeout_ms, work);
}

// Tensors of the GPU have places in pinned memory; those of the host are read now and written then.
Status update_on_device(device::Device& device, EpHandle& target, Update update, epcclStream_t stream) {
  using runtime::StagedCalls;
  EPCCL_TRY(check_no_ep_in_group());
  EPCCL_ASSIGN(auto* on, target.communicator()->on_device(device));
  target.device = &device;
  StagedCalls* staged = on->staged.get();
  std::vector<StagedCalls::Piece> inputs, outputs;
  uint64_t bytes = 0;
  const auto place = [&](const Tensor& tensor, std::vector<StagedCalls::Piece>& pieces) {
    if (tensor.bytes == 0 || !is_gpu_memory(tensor.address)) return false;
    pieces.push_back({static_cast<std::byte*>(tensor.data), bytes, tensor.bytes});
    bytes += (tensor.bytes + 15) / 16 * 16;
    return true;
  };
  const bool table_there = place(update.table, inputs);
  std::vector<std::pair<Tensor*, uint64_t>> moved;
  for (Tensor* tensor : update.counters.all())
    if (const uint64_t offset = bytes; place(*tensor, outputs)) moved.emplace_back(tensor, offset);
  EPCCL_ASSIGN(const StagedCalls::Borrowed pinned, staged->borrow(bytes));
  for (const auto& [tensor, offset] : moved) tensor->data = pinned->data() + offset;
  std::shared_ptr<std::vector<std::byte>> copy;
  if (!table_there) copy = copy_of(update.table);
  update.topk.data = table_there ? pinned->data() : copy->data();
  EPCCL_ASSIGN(std::shared_ptr<StagedCalls::Turn> turn, staged->take_turn(stream));
  auto work = [handle = target.handle, staged, turn, pinned, copy, update = std::move(update), inputs,
               outputs](Status& agreed) -> Status {
    EPCCL_TRY(staged->begun(*turn));
    EPCCL_TRY(staged->copy_pieces_in(inputs, pinned->data()));
    EPCCL_TRY(run_update(*handle, update.topk, update.counters, agreed));
    return agreed.ok() ? staged->copy_pieces_out(outputs, pinned->data()) : Status{};
  };
  turn = nullptr;  // the work holds it
  return run_ep(target.communicator(), &staged->worker(), target.handle->group().options().timeout_ms,
                std::move(work));
}

}  // namespace

Status update(EpHandle& target, const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* info,
              epcclStream_t stream) {
  EPCCL_ASSIGN(Update update, read_update(target, topk_idx, info));
  // A rank without tokens may not know K.
  target.topk_width = update.topk.tokens > 0 ? update.topk.k : ep::max_topk;
  std::vector<const Tensor*> tensors{&update.table};
  for (const Tensor* tensor : update.counters.all()) tensors.push_back(tensor);
  EPCCL_ASSIGN(device::Device * device, device_of_any(tensors, stream));
  if (device != nullptr) return update_on_device(*device, target, std::move(update), stream);
  return update_on_host(target, std::move(update), stream);
}

}  // namespace epccl::api
