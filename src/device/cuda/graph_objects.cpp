#include "device/cuda/graph_objects.hpp"

#include <utility>

namespace epccl::device::cuda {

Result<Capture> capture_of(const Context& context, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  Capture capture;
  EPCCL_TRY(context.call(context.driver().capture_info, stream, &status, &id, &capture.graph,
                         static_cast<const CUgraphNode**>(nullptr), static_cast<size_t*>(nullptr)));
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return error(Code::invalid_usage, "a stream of GPU {} is not being captured any more", context.ordinal());
  capture.id = id;
  return capture;
}

Status GraphObjects::keep(const Context& context, CUgraph graph, std::shared_ptr<const void> object) {
  const Driver& driver = context.driver();
  auto kept = std::make_unique<Kept>(Kept{std::move(object), gone_});
  CUuserObject handle = nullptr;
  EPCCL_TRY(context.call(driver.object_create, &handle, static_cast<void*>(kept.get()),
                         static_cast<CUhostFn>(graph_is_gone), 1U,
                         static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)));
  static_cast<void>(kept.release());  // the driver's from now on
  Status status = context.call(driver.graph_retain_object, graph, handle, 1U,
                               static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE));
  if (!status.ok()) static_cast<void>(context.call(driver.object_release, handle, 1U));
  return status;
}

void GraphObjects::graph_is_gone(void* kept) {
  std::unique_ptr<Kept> ended(static_cast<Kept*>(kept));
  const std::shared_ptr<Gone> gone = std::move(ended->gone);
  const std::lock_guard lock(gone->mutex);
  ended->before = std::move(gone->last);
  gone->last = std::move(ended);
}

// One by one: each destroying the one before it would need a stack for all.
GraphObjects::Gone::~Gone() {
  while (last != nullptr) last = std::move(last->before);
}

void GraphObjects::let_go() {
  std::unique_ptr<Kept> last;
  {
    const std::lock_guard lock(gone_->mutex);
    last = std::move(gone_->last);
  }
  while (last != nullptr) last = std::move(last->before);
}

}  // namespace epccl::device::cuda
