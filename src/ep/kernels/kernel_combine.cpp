#include "device/kernels/kernel_queue.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/kernels/captured_routing.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::ep {
namespace {

using namespace device::kernels;
using runtime::PeerRows;

class KernelCombine {
 public:
  /// `weights`: of a weighted combine, those that a dispatch brought.
  KernelCombine(const RoutingInUse& routing, const CombineCall& call, const KernelRooms& rooms,
                const KernelRooms::Room& weights)
      : routing_(routing), shape_(routing.shape), tables_(routing.tables), call_(call), rooms_(rooms) {
    describe_rows(weights);
  }

  uint64_t row_bytes() const { return rows_.format.bytes; }

  Status run(runtime::KernelCalls& kernels) {
    return kernels.run(rows_, combine_text(routing_.handle, call_), call_.progress, work());
  }
  /// The host's plan: a partial sum for each token and node crosses.
  Status run_across(Handle& handle, runtime::KernelCalls& kernels) {
    if (!copies_.empty()) EPCCL_TRY(kernels.copy(copies_));
    runtime::RowBuffers all = rows_;
    set_part(all.output, 0, call_.combined, shape_.tokens * token_bytes());
    if (returns_weights(call_)) {
      EPCCL_TRY(kernels.run_alone([this](device::Queue& queue) { return give_weights(queue); }));
      const void* const home = rooms_.home != nullptr ? static_cast<const void*>(rooms_.home->data())
                                                      : call_.combined_weights.data;
      set_part(all.output, 1, home, shape_.tokens * weight_bytes());
    }
    EPCCL_ASSIGN(const DevicePlans::Ready plan,
                 handle.plans().combine_on_device(row_bytes(), rooms_.plan_tables, kernels));
    return kernels.run_plan({*plan.program, plan.tables, all, rows_}, combine_text(routing_.handle, call_),
                            call_.progress);
  }
  Status capture(runtime::KernelCalls& kernels, const runtime::KernelCalls::IntoGraph& graph) {
    return kernels.capture(graph, rows_, combine_text(routing_.handle, call_), work());
  }

 private:
  runtime::KernelCalls::Work work() {
    runtime::KernelCalls::Work work;
    if (!copies_.empty()) work.before = [this](device::Queue& queue) { return queue.copy(copies_); };
    work.across = [this](device::Queue& queue, std::span<const PeerRows> peers) {
      return add_up(queue, peers);
    };
    return work;
  }

  bool is_across() const { return routing_.handle.group().cluster().nodes() > 1; }
  uint64_t token_bytes() const { return call_.hidden * bytes_of(call_.type); }
  uint64_t weight_bytes() const { return shape_.k * sizeof(float); }
  uint64_t weights_width() const { return shape_.by_expert ? 1 : shape_.k; }

  void describe_rows(const KernelRooms::Room& brought) {
    const uint64_t slots = shape_.slots;
    const auto reachable = [&](const void* user, const KernelRooms::Room& room, uint64_t bytes) {
      if (room == nullptr) return user;
      if (bytes > 0) copies_.push_back({room->data(), static_cast<const std::byte*>(user), bytes});
      return static_cast<const void*>(room->data());
    };
    rows_.format.add(token_bytes(), row_type(call_.type), call_.hidden);
    set_part(rows_.input, 0, reachable(call_.tokens, rooms_.rows, slots * token_bytes()),
             slots * token_bytes());
    if (returns_weights(call_)) {
      rows_.format.add(weight_bytes(), device::RowType::float32, shape_.k);
      const uint64_t bytes = slots * weights_width() * sizeof(float);
      if (is_across())
        set_part(rows_.input, 1, rooms_.weights->data(), slots * weight_bytes());
      else
        set_part(rows_.input, 1, reachable(call_.weights.data, rooms_.weights, bytes), bytes);
    }
    if (call_.weighted) {
      rows_.weights = reinterpret_cast<const float*>(brought->data());
      rows_.weights_per_row = shape_.k;
      rows_.weights_bytes = slots * weight_bytes();
    }
  }

  Status add_up(device::Queue& queue, std::span<const PeerRows> peers) {
    if (shape_.tokens == 0) return {};
    EPCCL_TRY(tables_->need_terms(routing_.handle, queue));
    SumParameters parameters;
    for (size_t peer = 0; peer < peers.size(); ++peer)
      parameters.sources[peer] = {peers[peer].inputs[0], token_bytes(), peers[peer].weights, nullptr, 0};
    parameters.destination = {static_cast<std::byte*>(call_.combined), token_bytes()};
    parameters.terms = tables_->terms();
    parameters.counts = tables_->term_counts();
    parameters.width = shape_.k;
    parameters.weights_per_row = shape_.k;
    parameters.elements = static_cast<uint32_t>(call_.hidden);
    parameters.rows = routing_.tokens();
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    const uint64_t entries = shape_.tokens * shape_.k;
    EPCCL_TRY(
        queue_kernel(queue, sum_launch(row_type(call_.type), Operands::plain, parameters, entries, grid)));
    return call_.combined_weights.given() ? bring_weights_home(queue, peers) : Status{};
  }

  // Every weight goes home from the one rank that has its expert: the others have zeros there. Each is a sum of one float, or of none.
  Status give_weights(device::Queue& queue) {
    if (shape_.slots == 0) return {};
    EPCCL_TRY(tables_->need_given(routing_.handle, queue));
    const uint64_t entries = shape_.slots * shape_.k;
    SumParameters parameters;
    parameters.sources[0] = {reinterpret_cast<const std::byte*>(call_.weights.data), sizeof(float), nullptr,
                             nullptr, 0};
    parameters.destination = {rooms_.weights->data(), sizeof(float)};
    parameters.terms = tables_->given();
    parameters.counts = tables_->given_counts();
    return add_floats(queue, parameters, entries);
  }
  static Status add_floats(device::Queue& queue, SumParameters& parameters, uint64_t entries) {
    parameters.width = 1;
    parameters.elements = 1;
    parameters.rows.most = static_cast<uint32_t>(entries);
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue,
                        sum_launch(device::RowType::float32, Operands::plain, parameters, entries, grid));
  }

  // Each is a sum of one float, or of none.
  Status bring_weights_home(device::Queue& queue, std::span<const PeerRows> peers) {
    EPCCL_TRY(tables_->need_homes(routing_.handle, queue));
    const uint64_t entries = shape_.tokens * shape_.k;
    SumParameters parameters;
    for (size_t peer = 0; peer < peers.size(); ++peer)
      parameters.sources[peer] = {peers[peer].inputs[1], sizeof(float), nullptr, nullptr, 0};
    parameters.destination = {reinterpret_cast<std::byte*>(call_.combined_weights.data), sizeof(float)};
    parameters.terms = tables_->homes();
    parameters.counts = tables_->home_counts();
    return add_floats(queue, parameters, entries);
  }

  const RoutingInUse& routing_;
  const CallShape& shape_;
  KernelTables* const tables_;
  const CombineCall& call_;
  const KernelRooms& rooms_;
  std::vector<device::CopyWork> copies_;  // of what peers cannot map, to where they can
  runtime::RowBuffers rows_;
};

}  // namespace

Status combine_by_kernels(Handle& handle, const CombineCall& call, runtime::KernelCalls& kernels,
                          const KernelRooms& rooms) {
  const CallShape shape = shape_of(handle);
  EPCCL_TRY(check_combine(shape, call, handle.kernel_weights() != nullptr));
  EPCCL_ASSIGN(KernelTables * tables,
               handle.kernel_tables(rooms.limits, rooms.tables_there, rooms.tables_here));
  const RoutingInUse routing{handle, shape, tables, nullptr};
  KernelCombine combine(routing, call, rooms, handle.kernel_weights());
  EPCCL_TRY(kernels.across_nodes() ? combine.run_across(handle, kernels) : combine.run(kernels));
  handle.combine_row_bytes = combine.row_bytes();
  return {};
}

Status capture_combine(Handle& handle, const CombineCall& call, const Captured& into,
                       runtime::KernelCalls& kernels) {
  CapturedRouting& captured = *into.routing;
  const RoutingInUse routing = captured.in_use(handle);
  EPCCL_TRY(check_combine(routing.shape, call, captured.brought_weights() != nullptr));
  EPCCL_ASSIGN(const KernelRooms rooms, captured.rooms(call, routing.shape.slots));
  return KernelCombine(routing, call, rooms, captured.brought_weights())
      .capture(kernels, {into.stream, keep(into.routing, rooms, captured.brought_weights())});
}

}  // namespace epccl::ep
