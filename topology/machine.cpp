#include "topology/machine.hpp"

namespace epccl::topology {

const char* to_string(Vendor vendor) {
  switch (vendor) {
    case Vendor::nvidia:
      return "nvidia";
    case Vendor::amd:
      return "amd";
    case Vendor::intel:
      return "intel";
    case Vendor::unknown:
      break;
  }
  return "unknown";
}

const char* to_string(NicKind kind) {
  switch (kind) {
    case NicKind::ethernet:
      return "ethernet";
    case NicKind::infiniband:
      return "infiniband";
    case NicKind::efa:
      return "efa";
    case NicKind::unknown:
      break;
  }
  return "unknown";
}

const char* to_string(LinkKind kind) {
  return kind == LinkKind::nvlink ? "nvlink" : "xgmi";
}

}  // namespace epccl::topology
