#include "api/ep/ep_replay.hpp"

#include "api/ep/ep_calls.hpp"
#include "api/ep/ep_capture.hpp"
#include "api/groups/capturing.hpp"

namespace epccl::api {

bool is_replayed(const EpHandle& target, const runtime::OnDevice& on) {
  const CommPtr communicator = target.communicator();
  // An error is for who makes the call to return.
  const auto use = communicator->gpu_engine_use();
  if (communicator->cluster().nodes() > 1 || !use.ok()) return true;
  const runtime::EngineChoice choice = on.kernels->choose(*use);
  return !choice.engines || choice.by_cores;
}

Result<std::shared_ptr<ep::ReplayedRouting>> replayed_routing_of(device::Device& device, EpHandle& target,
                                                                 const std::string& text) {
  EPCCL_TRY(check_static(target, text));
  // Its routing is the GPU's, of which the host knows nothing.
  if (target.captured() != nullptr)
    return not_capturable(
        text,
        "captured calls of this handle are kernels, and this one would be made by the host: who "
        "makes them must not change between them");
  target.device = &device;
  auto replayed = target.replayed();
  if (replayed == nullptr) {
    replayed = std::make_shared<ep::ReplayedRouting>(target.handle);
    replayed->set_tokens(target.tokens);
    target.set_replayed(replayed);
  }
  return replayed;
}

}  // namespace epccl::api
