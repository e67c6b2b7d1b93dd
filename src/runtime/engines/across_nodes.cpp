#include "runtime/engines/across_nodes.hpp"

namespace epccl::runtime {

AcrossNodes::AcrossNodes(device::Device& device, const topology::Cluster& cluster, int rank,
                         transports::NodeMemory& node, transports::MessageTransport& network,
                         FailureMonitor& monitor, const EngineConfig& config)
    : cluster_(cluster), executor_(device, cluster, rank, node, network, monitor, config.stage_bytes) {}

Status AcrossNodes::prepare(int width) {
  width_ = width;
  return executor_.prepare(width);
}

Result<DeviceProgram> AcrossNodes::make(const plan::RankPlan& plan, plan::Makers makers) const {
  return make_device_program(plan, cluster_, width_, piece_bytes(), makers);
}

Result<const DeviceProgram*> AcrossNodes::program(const std::string& text, const Build& build,
                                                  plan::Makers makers, bool remember) {
  const auto made_anew = [&]() -> Result<DeviceProgram> {
    EPCCL_ASSIGN(const plan::RankPlan plan, build());
    return make(plan, makers);
  };
  EPCCL_ASSIGN(const DeviceProgram* const known, programs_.get(text, remember, made_anew));
  return known;
}

}  // namespace epccl::runtime
