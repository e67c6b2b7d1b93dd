#include "runtime/comm/across_nodes.hpp"

#include <algorithm>
#include <utility>

namespace epccl::runtime {
namespace {

// As where there is one node.
constexpr size_t programs_kept_across = 128;

}  // namespace

AcrossNodes::AcrossNodes(device::Device& device, const topology::Cluster& cluster, int rank,
                         transports::NodeMemory& node, transports::MessageTransport& network,
                         FailureMonitor& monitor, const EngineConfig& config)
    : device_(device),
      cluster_(cluster),
      executor_(device, cluster, rank, node, network, monitor, config.stage_bytes) {}

Status AcrossNodes::prepare(int width) {
  width_ = width;
  return executor_.prepare(width);
}

Result<DeviceProgram> AcrossNodes::make(const plan::RankPlan& plan) const {
  return make_device_program(plan, cluster_, width_, piece_bytes());
}

Result<const DeviceProgram*> AcrossNodes::program(const std::string& text, const Build& build,
                                                  bool remember) {
  if (const auto known = programs_.find(text); remember && known != programs_.end()) return &known->second;
  if (programs_.size() >= programs_kept_across) programs_.clear();
  EPCCL_ASSIGN(const plan::RankPlan plan, build());
  EPCCL_ASSIGN(DeviceProgram made, make(plan));
  if (!remember) {
    last_ = std::move(made);
    return &last_;
  }
  return &programs_.emplace(text, std::move(made)).first->second;
}

}  // namespace epccl::runtime
