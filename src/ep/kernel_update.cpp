#include <fmt/format.h>

#include "ep/kernel_transfer.hpp"
#include "ep/row_call.hpp"

namespace epccl::ep {

using runtime::PeerRows;

Status update_by_kernels(Handle& handle, const RoutingOnDevice& routing,
                         const std::shared_ptr<DeviceLayout>& layout, runtime::KernelCalls& kernels) {
  EPCCL_TRY(handle.agree());
  if (!handle.failure().ok() && !handle.agreed()) return {};
  const SourceHeader header = handle.describe({nullptr, routing.wide, routing.tokens, routing.k});
  runtime::RowBuffers rows;
  rows.format.add(layout->records_bytes());
  set_part(rows.output, 0, layout->records(), layout->records_bytes());
  const std::string text =
      fmt::format("ep static layout of {} tokens top-{}", handle.rules().max_tokens, handle.rules().max_topk);
  EPCCL_TRY(kernels.run(
      rows, text, nullptr,
      [&](device::Queue& queue, std::span<const PeerRows> peers) {
        return layout->send(queue, peers, header, routing);
      },
      [&](device::Queue& queue, std::span<const PeerRows>) { return layout->make(queue, routing); }));
  EPCCL_ASSIGN(const std::vector<SourceHeader> headers, layout->headers());
  handle.take_layout(layout, routing.tokens, headers);
  return {};
}

}  // namespace epccl::ep
