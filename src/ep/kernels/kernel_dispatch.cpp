#include "device/host/fp8.hpp"
#include "device/kernels/kernel_queue.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/kernels/captured_routing.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::ep {
namespace {

using namespace device::kernels;
using runtime::PeerRows;

std::byte* device_bytes(const void* address) {
  return static_cast<std::byte*>(
      const_cast<void*>(address));  // NOLINT: parameters name inputs and outputs alike
}

class KernelDispatch {
 public:
  KernelDispatch(const RoutingInUse& routing, const DispatchCall& call, const KernelRooms& rooms)
      : routing_(routing),
        shape_(routing.shape),
        tables_(routing.tables),
        call_(call),
        rooms_(rooms),
        to_float8_(call.received_type == TokenType::float8_e4m3),
        quantises_(quantises(call)) {
    describe_rows();
  }

  uint64_t row_bytes() const { return rows_.format.bytes; }

  Status run(runtime::KernelCalls& kernels) {
    return kernels.run(rows_, dispatch_text(routing_.handle, call_), call_.progress, work());
  }
  Status run_across(Handle& handle, runtime::KernelCalls& kernels) {
    if (keeps_rows()) EPCCL_TRY(kernels.run_alone(before()));
    EPCCL_TRY(kernels.run_alone([this](device::Queue& queue) { return prepare_own(queue); }));
    runtime::RowBuffers all = rows_;
    describe_own(all.input);
    EPCCL_ASSIGN(
        const DevicePlans::Ready plan,
        handle.plans().dispatch_on_device(row_bytes(), rows_.format.count == 1, rooms_.plan_tables, kernels));
    const runtime::Spread own{shape_.tokens > 0 ? tables_->targets() : nullptr,
                              static_cast<uint32_t>(shape_.tokens), shape_.k};
    EPCCL_TRY(kernels.run_plan({*plan.program, plan.tables, all, rows_, own},
                               dispatch_text(routing_.handle, call_), call_.progress));
    return kernels.run_alone([this](device::Queue& queue) { return finish(queue); });
  }
  Status capture(runtime::KernelCalls& kernels, const runtime::KernelCalls::IntoGraph& graph) {
    return kernels.capture(graph, rows_, dispatch_text(routing_.handle, call_), work());
  }

 private:
  /// Rows without a token keep what they held, so what stands in for them has to hold it, too. (Which rows those are the host may not
  /// know.)
  bool keeps_rows() const {
    return (rooms_.rows != nullptr || call_.received_scales.given()) && shape_.slots > 0 &&
           leaves_rows(routing_.handle.rules());
  }
  std::function<Status(device::Queue&)> before() {
    return [this](device::Queue& queue) -> Status {
      if (rooms_.rows != nullptr)
        EPCCL_TRY(copy(queue, rooms_.rows->data(), call_.received, shape_.slots * token_bytes()));
      if (!call_.received_scales.given()) return {};
      return copy(queue, rooms_.scales->data(), call_.received_scales.data, shape_.slots * scale_bytes());
    };
  }
  runtime::KernelCalls::Work work() {
    return {keeps_rows() ? before() : nullptr,
            [this](device::Queue& queue, std::span<const PeerRows> peers) { return spread(queue, peers); },
            [this](device::Queue& queue, std::span<const PeerRows>) { return finish(queue); }};
  }

  uint64_t token_bytes() const { return call_.hidden * bytes_of(call_.received_type); }
  uint64_t scale_bytes() const { return device::e4m3_scales(call_.hidden) * sizeof(float); }
  uint64_t weight_bytes() const { return shape_.k * sizeof(float); }
  bool by_expert() const { return shape_.by_expert; }
  std::byte* received() const {
    return rooms_.rows != nullptr ? rooms_.rows->data() : device_bytes(call_.received);
  }
  const float* brought() const { return reinterpret_cast<const float*>(rooms_.weights->data()); }

  void describe_rows() {
    const uint64_t slots = shape_.slots;
    rows_.format.add(token_bytes());
    set_part(rows_.output, 0, received(), slots * token_bytes());
    if (to_float8_) {
      rows_.format.add(scale_bytes());
      set_part(rows_.output, 1, rooms_.scales->data(), slots * scale_bytes());
    }
    if (!call_.weights.given()) return;
    const size_t part = rows_.format.count;
    rows_.format.add(weight_bytes());
    set_part(rows_.output, part, rooms_.weights->data(), slots * weight_bytes());
  }

  // What only this rank reads: its tokens, as they travel.
  void describe_own(runtime::RowArrays& input) const {
    const uint64_t tokens = shape_.tokens;
    set_part(input, 0, quantises_ ? rooms_.quantised->data() : call_.tokens, tokens * token_bytes());
    if (to_float8_)
      set_part(input, 1, quantises_ ? static_cast<const void*>(quantised_scales()) : call_.scales.data,
               tokens * scale_bytes());
    if (call_.weights.given())
      set_part(input, rows_.format.count - 1, call_.weights.data, tokens * weight_bytes());
  }
  std::byte* quantised_scales() const { return rooms_.quantised->data() + shape_.tokens * token_bytes(); }

  Status prepare_own(device::Queue& queue) {
    if (shape_.tokens == 0) return {};
    EPCCL_TRY(tables_->need_targets(routing_.handle, queue));
    return quantises_ ? quantise(queue) : Status{};
  }

  // Row by row, to where they are sent from.
  Status quantise(device::Queue& queue) {
    SpreadParameters parameters;
    parameters.part_count = 2;
    parameters.parts[0].source = {device_bytes(call_.tokens), call_.hidden * bytes_of(call_.type)};
    parameters.parts[0].bytes = call_.hidden * bytes_of(call_.type);
    parameters.parts[0].destination_stride = token_bytes();
    parameters.parts[0].destinations[0] = rooms_.quantised->data();
    parameters.parts[1].bytes = parameters.parts[1].destination_stride = scale_bytes();
    parameters.parts[1].destinations[0] = quantised_scales();
    parameters.rows.most = static_cast<uint32_t>(shape_.tokens);
    parameters.width = 1;
    parameters.elements = static_cast<uint32_t>(call_.hidden);
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue, quantise_launch(row_type(call_.type), parameters, grid));
  }

  Status spread(device::Queue& queue, std::span<const PeerRows> peers) {
    if (shape_.tokens == 0) return {};
    EPCCL_TRY(tables_->need_targets(routing_.handle, queue));
    SpreadParameters parameters;
    const auto add = [&](const void* source, uint64_t bytes, uint64_t stride) {
      const uint32_t number = parameters.part_count++;
      SpreadParameters::Part& part = parameters.parts[number];
      part.source = {device_bytes(source), bytes};
      part.bytes = bytes;
      part.destination_stride = stride;
      for (size_t peer = 0; peer < peers.size(); ++peer)
        part.destinations[peer] = peers[peer].outputs[number];
    };
    add(call_.tokens, call_.hidden * bytes_of(call_.type), token_bytes());
    if (to_float8_) add(call_.scales.data, scale_bytes(), scale_bytes());
    if (call_.weights.given()) add(call_.weights.data, weight_bytes(), weight_bytes());
    parameters.targets = tables_->targets();
    parameters.rows = routing_.tokens();
    parameters.width = shape_.k;
    parameters.elements = static_cast<uint32_t>(call_.hidden);
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue, quantises_ ? quantise_launch(row_type(call_.type), parameters, grid)
                                          : spread_launch(parameters, grid));
  }

  // On this rank's own rows, when all are there.
  Status finish(device::Queue& queue) {
    const uint64_t slots = shape_.slots;
    if (slots == 0) return {};
    const bool weights = call_.received_weights.given();
    const bool clears = by_expert() && shape_.clears_padding;
    if (clears || call_.weighted || weights || call_.received_topk.given())
      EPCCL_TRY(tables_->need_rows(routing_.handle, queue));
    if (clears) EPCCL_TRY(clear_padding(queue));
    if (call_.weighted) EPCCL_TRY(multiply(queue));
    if (rooms_.rows != nullptr)
      EPCCL_TRY(copy(queue, call_.received, rooms_.rows->data(), slots * token_bytes()));
    if (call_.received_scales.given())
      EPCCL_TRY(copy(queue, call_.received_scales.data, rooms_.scales->data(), slots * scale_bytes()));
    if (call_.received_topk.given()) EPCCL_TRY(write_topk(queue));
    return weights ? write_weights(queue) : Status{};
  }

  static Status copy(device::Queue& queue, void* to, const void* from, uint64_t bytes) {
    const device::CopyWork work{device_bytes(to), device_bytes(from), bytes};
    return queue.copy({&work, 1});
  }

  Status clear_padding(device::Queue& queue) {
    MoveParameters parameters;
    parameters.sources.list = tables_->row_entries();
    parameters.parts[0].destination = {received(), token_bytes()};
    parameters.parts[0].bytes = token_bytes();
    parameters.part_count = 1;
    if (to_float8_) {
      parameters.parts[1].destination = {rooms_.scales->data(), scale_bytes()};
      parameters.parts[1].bytes = scale_bytes();
      parameters.part_count = 2;
    }
    parameters.rows.most = static_cast<uint32_t>(shape_.slots);
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue, clear_launch(parameters, grid));
  }

  // Each row is the sum of itself, weighted.
  Status multiply(device::Queue& queue) {
    SumParameters parameters;
    parameters.sources[0] = {received(), token_bytes(), brought(), nullptr, 0};
    parameters.destination = {received(), token_bytes()};
    parameters.terms = tables_->row_terms();
    parameters.counts = tables_->row_counts();
    parameters.width = 1;
    parameters.weights_per_row = shape_.k;
    parameters.elements = static_cast<uint32_t>(call_.hidden);
    parameters.rows.most = static_cast<uint32_t>(shape_.slots);
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue, sum_launch(row_type(call_.type), Operands::plain, parameters,
                                          static_cast<uint32_t>(shape_.slots), grid));
  }

  /// Which rows there are, and which of the top-k each belongs to.
  template <typename Parameters>
  void list_entries(Parameters& parameters) const {
    parameters.rows.most = static_cast<uint32_t>(shape_.slots);
    parameters.k = shape_.k;
    if (by_expert())
      parameters.row_entries = tables_->row_entries();
    else
      parameters.row_topk = tables_->row_topk();
  }

  Status write_topk(device::Queue& queue) {
    TopkParameters parameters;
    list_entries(parameters);
    parameters.topk = call_.received_topk.data;
    parameters.wide = call_.received_topk_wide ? 1 : 0;
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue, topk_launch(parameters, grid));
  }

  Status write_weights(device::Queue& queue) {
    WeightsParameters parameters;
    parameters.brought = brought();
    list_entries(parameters);
    parameters.weights = call_.received_weights.data;
    EPCCL_ASSIGN(const Grid grid, grid_of(queue));
    return queue_kernel(queue, weights_launch(parameters, grid));
  }

  const RoutingInUse& routing_;
  const CallShape& shape_;
  KernelTables* const tables_;
  const DispatchCall& call_;
  const KernelRooms& rooms_;
  const bool to_float8_, quantises_;
  runtime::RowBuffers rows_;
};

}  // namespace

Status dispatch_by_kernels(Handle& handle, const DispatchCall& call, runtime::KernelCalls& kernels,
                           const KernelRooms& rooms) {
  const CallShape shape = shape_of(handle);
  EPCCL_TRY(check_dispatch(shape, call));
  EPCCL_ASSIGN(KernelTables * tables,
               handle.kernel_tables(rooms.limits, rooms.tables_there, rooms.tables_here));
  const RoutingInUse routing{handle, shape, tables, nullptr};
  KernelDispatch dispatch(routing, call, rooms);
  EPCCL_TRY(kernels.across_nodes() ? dispatch.run_across(handle, kernels) : dispatch.run(kernels));
  handle.dispatch_row_bytes = dispatch.row_bytes();
  handle.set_kernel_weights(rooms.weights);
  return {};
}

Status capture_dispatch(Handle& handle, const DispatchCall& call, const Captured& into,
                        runtime::KernelCalls& kernels) {
  CapturedRouting& captured = *into.routing;
  const RoutingInUse routing = captured.in_use(handle);
  EPCCL_TRY(check_dispatch(routing.shape, call));
  EPCCL_ASSIGN(const KernelRooms rooms, captured.rooms(call, routing.shape.slots, routing.shape.k));
  EPCCL_TRY(KernelDispatch(routing, call, rooms).capture(kernels, {into.stream, keep(into.routing, rooms)}));
  captured.set_brought_weights(rooms.weights);
  return {};
}

}  // namespace epccl::ep
