#include "device/cuda/kernel_queue.hpp"
#include "ep/kernel_transfer.hpp"
#include "ep/row_call.hpp"

namespace epccl::ep {
namespace {

using namespace device::cuda;
using runtime::PeerRows;

class KernelCombine {
 public:
  KernelCombine(Handle& handle, const CombineCall& call, const KernelRooms& rooms)
      : handle_(handle), call_(call), rooms_(rooms) {}

  Status run(runtime::KernelCalls& kernels) {
    EPCCL_TRY(check_combine(handle_, call_, handle_.kernel_weights() != nullptr));
    EPCCL_ASSIGN(tables_, handle_.kernel_tables(rooms_.limits, rooms_.tables_there, rooms_.tables_here));
    EPCCL_TRY(describe_rows(kernels));
    EPCCL_TRY(kernels.run(
        rows_, combine_text(call_), call_.progress,
        [this](device::Queue& queue, std::span<const PeerRows> peers) { return add_up(queue, peers); },
        nullptr));
    handle_.combine_row_bytes = rows_.format.bytes;
    return {};
  }

 private:
  uint64_t token_bytes() const { return call_.hidden * bytes_of(call_.type); }
  uint64_t weight_bytes() const { return handle_.k() * sizeof(float); }
  uint64_t weights_width() const { return handle_.node_slots().by_expert() ? 1 : handle_.k(); }

  Status describe_rows(runtime::KernelCalls& kernels) {
    const uint64_t slots = handle_.slots();
    std::vector<device::CopyWork> copies;
    const auto reachable = [&](const void* user, const KernelRooms::Room& room, uint64_t bytes) {
      if (room == nullptr) return user;
      if (bytes > 0) copies.push_back({room->data(), static_cast<const std::byte*>(user), bytes});
      return static_cast<const void*>(room->data());
    };
    rows_.format.add(token_bytes());
    set_part(rows_.input, 0, reachable(call_.tokens, rooms_.rows, slots * token_bytes()),
             slots * token_bytes());
    if (call_.weights.given() || call_.combined_weights.given()) {
      const uint64_t bytes = slots * weights_width() * sizeof(float);
      rows_.format.add(weight_bytes());
      set_part(rows_.input, 1, reachable(call_.weights.data, rooms_.weights, bytes), bytes);
    }
    if (call_.weighted) {
      rows_.weights = reinterpret_cast<const float*>(handle_.kernel_weights()->data());
      rows_.weights_per_row = handle_.k();
      rows_.weights_bytes = slots * weight_bytes();
    }
    return copies.empty() ? Status{} : kernels.copy(copies);
  }

  Status add_up(device::Queue& queue, std::span<const PeerRows> peers) {
    if (handle_.tokens() == 0) return {};
    EPCCL_TRY(tables_->need_terms(handle_, queue));
    SumParameters parameters;
    for (size_t peer = 0; peer < peers.size(); ++peer)
      parameters.sources[peer] = {peers[peer].inputs[0], token_bytes(), peers[peer].weights, nullptr, 0};
    parameters.destination = {static_cast<std::byte*>(call_.combined), token_bytes()};
    parameters.terms = tables_->terms();
    parameters.counts = tables_->term_counts();
    parameters.width = handle_.k();
    parameters.weights_per_row = handle_.k();
    parameters.elements = static_cast<uint32_t>(call_.hidden);
    parameters.rows.most = handle_.tokens();
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    const uint64_t entries = uint64_t{handle_.tokens()} * handle_.k();
    EPCCL_TRY(
        queue_kernel(queue, sum_launch(row_type(call_.type), Operands::plain, parameters, entries, grid)));
    return call_.combined_weights.given() ? bring_weights_home(queue, peers) : Status{};
  }

  // Each is a sum of one float, or of none.
  Status bring_weights_home(device::Queue& queue, std::span<const PeerRows> peers) {
    EPCCL_TRY(tables_->need_homes(handle_, queue));
    const uint64_t entries = uint64_t{handle_.tokens()} * handle_.k();
    SumParameters parameters;
    for (size_t peer = 0; peer < peers.size(); ++peer)
      parameters.sources[peer] = {peers[peer].inputs[1], sizeof(float), nullptr, nullptr, 0};
    parameters.destination = {reinterpret_cast<std::byte*>(call_.combined_weights.data), sizeof(float)};
    parameters.terms = tables_->homes();
    parameters.counts = tables_->home_counts();
    parameters.width = 1;
    parameters.elements = 1;
    parameters.rows.most = static_cast<uint32_t>(entries);
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue,
                        sum_launch(device::RowType::float32, Operands::plain, parameters, entries, grid));
  }

  Handle& handle_;
  const CombineCall& call_;
  const KernelRooms& rooms_;
  KernelTables* tables_ = nullptr;
  runtime::RowBuffers rows_;
};

}  // namespace

Status combine_by_kernels(Handle& handle, const CombineCall& call, runtime::KernelCalls& kernels,
                          const KernelRooms& rooms) {
  return KernelCombine(handle, call, rooms).run(kernels);
}

}  // namespace epccl::ep
