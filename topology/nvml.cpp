#include "topology/nvml.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "topology/dynamic_library.hpp"

namespace epccl::topology {
namespace {

// NVML's header is not in every toolkit: these are the few declarations used, as they have been since driver
// 410.
using NvmlReturn = int;
constexpr NvmlReturn nvml_success = 0;
struct NvmlDeviceRecord;
using NvmlDevice = NvmlDeviceRecord*;

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

constexpr unsigned max_nvlinks = 36;  // 18 up to Hopper and Blackwell; calls beyond a GPU's own number fail
constexpr unsigned max_devices = MachineLimits::gpus;
constexpr size_t name_size = 96;
enum NvLinkDevice : int { remote_gpu = 0, remote_cpu = 1, remote_switch = 2, remote_unknown = 255 };

struct Nvml {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  NvmlReturn (*device_count)(unsigned*) = nullptr;
  NvmlReturn (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*pci_info)(NvmlDevice, NvmlPciInfo*) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*compute_capability)(NvmlDevice, int*, int*) = nullptr;
  // Old drivers lack these: no links are reported then.
  NvmlReturn (*link_state)(NvmlDevice, unsigned, int*) = nullptr;
  NvmlReturn (*link_remote_pci)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
  NvmlReturn (*link_remote_type)(NvmlDevice, unsigned, int*) = nullptr;

  explicit Nvml(const DynamicLibrary& library) {
    complete_ = library.find("nvmlInit_v2", init) && library.find("nvmlShutdown", shutdown) &&
                library.find("nvmlDeviceGetCount_v2", device_count) &&
                library.find("nvmlDeviceGetHandleByIndex_v2", device_by_index) &&
                library.find("nvmlDeviceGetPciInfo_v3", pci_info) &&
                library.find("nvmlDeviceGetName", name) &&
                library.find("nvmlDeviceGetCudaComputeCapability", compute_capability);
    library.find("nvmlDeviceGetNvLinkState", link_state);
    library.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_remote_pci);
    library.find("nvmlDeviceGetNvLinkRemoteDeviceType", link_remote_type);
  }
  bool complete() const { return complete_; }
  bool has_links() const { return link_state != nullptr && link_remote_pci != nullptr; }

 private:
  bool complete_ = false;
};

struct Neighbour {
  LinkEnd end;
  std::string id;
  auto operator<=>(const Neighbour&) const = default;
};

std::optional<BusId> bus_id_of(NvmlPciInfo& info) {
  info.bus_id[sizeof info.bus_id - 1] = 0;
  return BusId::parse(info.bus_id);
}

/// A switch whose PCI device is hidden from this system (a virtual machine) has a bus id like
/// "FFFFFFFF:FF:1F.7", or all zeros; such switches are one.
constexpr const char* hidden_switch = "nvswitch";

std::map<Neighbour, int> neighbours(const Nvml& nvml, NvmlDevice device) {
  std::map<Neighbour, int> counts;
  if (!nvml.has_links()) return counts;
  for (unsigned link = 0; link < max_nvlinks; ++link) {
    int active = 0;
    if (nvml.link_state(device, link, &active) != nvml_success || active == 0) continue;
    NvmlPciInfo remote{};
    const bool has_pci = nvml.link_remote_pci(device, link, &remote) == nvml_success;
    int type = remote_unknown;
    if (nvml.link_remote_type != nullptr && nvml.link_remote_type(device, link, &type) != nvml_success)
      type = remote_unknown;
    const auto id = has_pci ? bus_id_of(remote) : std::nullopt;
    if (type == remote_unknown && id) type = remote_gpu;
    if (type == remote_unknown) continue;
    const bool visible = id && *id != BusId{} && id->domain != UINT32_MAX;
    const LinkEnd end = type == remote_gpu   ? LinkEnd::gpu
                        : type == remote_cpu ? LinkEnd::cpu
                                             : LinkEnd::gpu_switch;
    if (!visible && end == LinkEnd::gpu) continue;
    ++counts[{end, visible ? id->to_string() : end == LinkEnd::cpu ? "cpu" : hidden_switch}];
  }
  return counts;
}

Status add_device(const Nvml& nvml, NvmlDevice device, MachineBuilder& builder) {
  NvmlPciInfo info{};
  if (const NvmlReturn code = nvml.pci_info(device, &info); code != nvml_success)
    return error(Code::device_error, "no PCI id of a GPU (code {})", code);
  const auto id = bus_id_of(info);
  if (!id) return error(Code::device_error, "\"{}\" is no PCI bus id", info.bus_id);
  if (builder.find_gpu(*id) == nullptr) {
    Gpu gpu;
    gpu.bus_id = *id;
    gpu.pci = builder.find_pci_device(*id);
    EPCCL_TRY(builder.add_gpu(std::move(gpu), {}));
  }
  Gpu& gpu = *builder.find_gpu(*id);
  gpu.vendor = Vendor::nvidia;
  char name[name_size + 1] = {};
  if (nvml.name(device, name, name_size) == nvml_success) gpu.model = name;
  int major = 0, minor = 0;
  if (nvml.compute_capability(device, &major, &minor) == nvml_success)
    gpu.arch = fmt::format("sm_{}{}", major, minor);
  for (const auto& [neighbour, count] : neighbours(nvml, device))
    EPCCL_TRY(builder.add_link(*id, LinkKind::nvlink, neighbour.end, neighbour.id, count));
  return {};
}

}  // namespace

Status add_nvml_gpus(MachineBuilder& builder, const std::string& library_name) {
  EPCCL_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(library_name));
  const Nvml nvml(library);
  if (!nvml.complete()) return error(Code::device_error, "{} lacks a function that is needed", library_name);
  if (const NvmlReturn code = nvml.init(); code != nvml_success)
    return error(Code::device_error, "nvmlInit failed with code {}", code);
  const auto add_all = [&]() -> Status {
    unsigned count = 0;
    if (const NvmlReturn code = nvml.device_count(&count); code != nvml_success)
      return error(Code::device_error, "no GPU count (code {})", code);
    for (unsigned index = 0; index < std::min(count, max_devices); ++index) {
      NvmlDevice device = nullptr;
      // A GPU that this process may not see, or that has fallen off the bus, is not one of the machine's.
      if (nvml.device_by_index(index, &device) == nvml_success) EPCCL_TRY(add_device(nvml, device, builder));
    }
    return {};
  };
  const Status status = add_all();
  nvml.shutdown();
  return status;
}

}  // namespace epccl::topology
