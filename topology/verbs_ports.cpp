#include "topology/verbs_ports.hpp"

#include "topology/dynamic_library.hpp"
#include "topology/pci_ids.hpp"

#if EPCCL_HAVE_IBVERBS
#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
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

/// ibv_query_port() is a macro around this symbol, which fills all but the newest fields.
using QueryPort = int(ibv_context*, uint8_t, ibv_port_attr*);
#undef ibv_query_port
#undef ibv_get_device_list

struct Verbs {
  ibv_device** (*get_device_list)(int*) = nullptr;
  void (*free_device_list)(ibv_device**) = nullptr;
  const char* (*get_device_name)(ibv_device*) = nullptr;
  uint64_t (*get_device_guid)(ibv_device*) = nullptr;
  ibv_context* (*open_device)(ibv_device*) = nullptr;
  int (*close_device)(ibv_context*) = nullptr;
  int (*query_device)(ibv_context*, ibv_device_attr*) = nullptr;
  QueryPort* query_port = nullptr;
  bool complete = false;

  explicit Verbs(const DynamicLibrary& library) {
    complete = library.find("ibv_get_device_list", get_device_list) &&
               library.find("ibv_free_device_list", free_device_list) &&
               library.find("ibv_get_device_name", get_device_name) &&
               library.find("ibv_get_device_guid", get_device_guid) &&
               library.find("ibv_open_device", open_device) &&
               library.find("ibv_close_device", close_device) &&
               library.find("ibv_query_device", query_device) && library.find("ibv_query_port", query_port);
  }
};

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

Status add_device(const Verbs& verbs, ibv_device* device, MachineBuilder& builder) {
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
  const Verbs verbs(library);
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
