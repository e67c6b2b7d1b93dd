#include "topology/verbs_ports.hpp"

#include "topology/pci_ids.hpp"

#if EPCCL_HAVE_IBVERBS
#include <endian.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "topology/verbs_functions.hpp"
#endif

namespace epccl::topology {

int64_t infiniband_mbit(unsigned active_width, unsigned active_speed) {
  struct Row {
    unsigned code;
    int64_t value;
  };
  constexpr Row lanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  constexpr Row lane_mbit[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                               {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
  int64_t width = 0, rate = 0;
  for (const Row& row : lanes)
    if (row.code == active_width) width = row.value;
  for (const Row& row : lane_mbit)
    if (row.code == active_speed) rate = row.value;
  return width * rate;
}

#if EPCCL_HAVE_IBVERBS
namespace {

/// From the link "/sys/class/infiniband/mlx5_0/device" to ".../0000:3b:00.0".
int pci_of(const MachineBuilder& builder, const ibv_device& device) {
  std::error_code failed;
  const auto target = std::filesystem::canonical(std::filesystem::path(device.ibdev_path) / "device", failed);
  const auto id = failed ? std::nullopt : BusId::parse(target.filename().string());
  return id ? builder.find_pci_device(*id) : -1;
}

Status add_port(MachineBuilder& builder, const std::string& name, int port, uint64_t guid, int pci,
                const ibv_port_attr& attributes) {
  const auto describe = [&](Nic& nic) {
    nic.guid = guid;
    nic.speed_mbit = infiniband_mbit(attributes.active_width, attributes.active_speed);
    nic.up = attributes.state == IBV_PORT_ACTIVE;
    if (nic.kind == NicKind::efa) return;
    if (attributes.link_layer == IBV_LINK_LAYER_INFINIBAND) nic.kind = NicKind::infiniband;
    if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) nic.kind = NicKind::ethernet;
  };
  for (Nic& nic : builder.nics()) {
    if (nic.rdma_device != name || nic.port != port) continue;
    describe(nic);
    return {};
  }
  Nic nic;
  nic.rdma_device = name;
  nic.port = port;
  nic.pci = pci;
  if (pci >= 0) {
    const PciDevice& device = builder.so_far().pci_devices[static_cast<size_t>(pci)];
    nic.kind = nic_kind(device.pci_class, device.vendor, device.device);
  }
  describe(nic);
  return builder.add_nic(std::move(nic));
}

Status add_device(const VerbsFunctions& verbs, ibv_device* device, MachineBuilder& builder) {
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(verbs.open_device(device),
                                                                    verbs.close_device);
  const std::string name = verbs.get_device_name(device);
  if (context == nullptr) {
    builder.note(fmt::format("RDMA device {} cannot be opened", name));
    return {};
  }
  ibv_device_attr about{};
  if (verbs.query_device(context.get(), &about) != 0) return {};
  for (int port = 1; port <= about.phys_port_cnt; ++port) {
    ibv_port_attr attributes{};
    if (verbs.query_port(context.get(), static_cast<uint8_t>(port), &attributes) != 0) continue;
    EPCCL_TRY(add_port(builder, name, port, be64toh(verbs.get_device_guid(device)), pci_of(builder, *device),
                       attributes));
  }
  return {};
}

}  // namespace

Status add_verbs_ports(MachineBuilder& builder, const std::string& library_name) {
  EPCCL_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(library_name));
  const VerbsFunctions verbs(library);
  if (!verbs.complete) return error(Code::system_error, "{} lacks a function that is needed", library_name);
  int count = 0;
  ibv_device** raw = verbs.get_device_list(&count);
  if (raw == nullptr) return {};  // no RDMA in this kernel
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(raw, verbs.free_device_list);
  for (int i = 0; i < count; ++i) EPCCL_TRY(add_device(verbs, raw[i], builder));
  return {};
}
#else
Status add_verbs_ports(MachineBuilder&, const std::string&) {
  return error(Code::system_error, "not built in: its header was not found");
}
#endif

}  // namespace epccl::topology
