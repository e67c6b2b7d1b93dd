#include "ep/calls/row_call.hpp"
#include "ep/kernels/captured_routing.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::ep {

using runtime::PeerRows;

namespace {

/// The records of the layout, which peers write.
runtime::RowBuffers rows_of(const DeviceLayout& layout) {
  runtime::RowBuffers rows;
  rows.format.add(layout.records_bytes());
  set_part(rows.output, 0, layout.records(), layout.records_bytes());
  return rows;
}

// Records travel as those of an allgather do, from GPU to GPU.
Status update_across(Handle& handle, const RoutingOnDevice& routing,
                     const std::shared_ptr<DeviceLayout>& layout, runtime::KernelCalls& kernels) {
  EPCCL_TRY(handle.agree_across());
  const std::shared_ptr<const StreamFrame> frame = handle.frame();
  if (frame == nullptr) return {};
  const SourceHeader header = handle.describe({nullptr, routing.wide, routing.tokens, routing.k});
  EPCCL_TRY(
      kernels.run_alone([&](device::Queue& queue) { return layout->write_own(queue, header, routing); }));
  EPCCL_TRY(kernels.gather(layout->own_record(), layout->records(), layout->record_bytes(),
                           header.chunk_bytes, handle.layout_name()));
  EPCCL_TRY(kernels.run_alone([&](device::Queue& queue) { return layout->make(queue, routing, frame); }));
  EPCCL_ASSIGN(const std::vector<SourceHeader> headers, layout->headers());
  handle.take_layout(layout, routing.tokens, headers);
  return {};
}

}  // namespace

Status update_by_kernels(Handle& handle, const RoutingOnDevice& routing,
                         const std::shared_ptr<DeviceLayout>& layout, runtime::KernelCalls& kernels) {
  if (kernels.across_nodes()) return update_across(handle, routing, layout, kernels);
  EPCCL_TRY(handle.agree());
  if (!handle.failure().ok() && !handle.agreed()) return {};
  const SourceHeader header = handle.describe({nullptr, routing.wide, routing.tokens, routing.k});
  EPCCL_TRY(kernels.run(
      rows_of(*layout), handle.layout_text(), nullptr,
      {nullptr,
       [&](device::Queue& queue, std::span<const PeerRows> peers) {
         return layout->send(queue, peers, header, routing);
       },
       [&](device::Queue& queue, std::span<const PeerRows>) { return layout->make(queue, routing); }}));
  EPCCL_ASSIGN(const std::vector<SourceHeader> headers, layout->headers());
  handle.take_layout(layout, routing.tokens, headers);
  return {};
}

// What a record says but for its table follows from the call, so ranks tell each other now what may be wrong with that.
Status capture_update(Handle& handle, const RoutingOnDevice& given, const Captured& into,
                      runtime::KernelCalls& kernels, Status& agreed) {
  CapturedRouting& captured = *into.routing;
  DeviceLayout& layout = captured.layout();
  const TopK sizes{nullptr, given.wide, given.tokens, given.k};
  EPCCL_TRY(handle.agree_on(sizes, ", captured into a graph", agreed));
  if (!agreed.ok()) return {};
  EPCCL_TRY(layout.make_sure(kernels));
  const SourceHeader header = handle.describe(sizes);
  EPCCL_ASSIGN(const KernelRooms::Room head, layout.make_head(header, given));
  const runtime::KernelCalls::IntoGraph graph{into.stream, keep(into.routing, {}, head)};
  EPCCL_TRY(kernels.capture(graph, rows_of(layout), handle.layout_text(),
                            {nullptr,
                             [&](device::Queue& queue, std::span<const PeerRows> peers) {
                               return layout.send_again(queue, peers, head->data(), given);
                             },
                             [&](device::Queue& queue, std::span<const PeerRows>) {
                               return layout.make_again(queue, given, captured.wrong_entries());
                             }}));
  captured.set_tokens(given.tokens);
  return {};
}

}  // namespace epccl::ep
