#include "topology/rdma_devices.hpp"

#include <arpa/inet.h>

#include <array>

#if EPCCL_HAVE_IBVERBS
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "topology/verbs_functions.hpp"
#include "topology/verbs_ports.hpp"
#endif

namespace epccl::topology {

std::string gid_text(const uint8_t* raw) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* written = inet_ntop(AF_INET6, raw, text.data(), text.size());
  return written == nullptr ? "" : written;
}

#if EPCCL_HAVE_IBVERBS
namespace {

std::string state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active, deferred";
    case IBV_PORT_NOP:
      break;
  }
  return "unknown";
}

std::string layer_text(uint8_t layer) {
  if (layer == IBV_LINK_LAYER_INFINIBAND) return "InfiniBand";
  return layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "unknown";
}

std::string gid_type_text(uint32_t type) {
  if (type == IBV_GID_TYPE_IB) return "IB";
  if (type == IBV_GID_TYPE_ROCE_V1) return "RoCE v1";
  return type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : fmt::format("type {}", type);
}

int mtu_bytes(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

std::string failure(const char* what, int code) {
  return fmt::format("{}: {}", what, std::strerror(code));
}

void add_gids(const VerbsFunctions& verbs, ibv_context* context, int entries, RdmaPort& port) {
  constexpr int enough = 256;
  if (verbs.query_gid == nullptr) {
    port.not_asked.push_back("GIDs: this libibverbs is too old to list them");
    return;
  }
  for (int index = 0; index < std::min(entries, enough); ++index) {
    ibv_gid_entry entry{};
    if (verbs.query_gid(context, static_cast<uint32_t>(port.port), static_cast<uint32_t>(index), &entry, 0,
                        sizeof entry) != 0)
      continue;
    if (std::all_of(std::begin(entry.gid.raw), std::end(entry.gid.raw),
                    [](uint8_t byte) { return byte == 0; }))
      continue;
    port.gids.push_back({index, gid_text(entry.gid.raw), gid_type_text(entry.gid_type)});
  }
}

RdmaPort ask_port(const VerbsFunctions& verbs, ibv_context* context, int number) {
  RdmaPort port;
  port.port = number;
  ibv_port_attr attributes{};
  if (const int code = verbs.query_port(context, static_cast<uint8_t>(number), &attributes); code != 0) {
    port.state = "unknown";
    port.link_layer = "unknown";
    port.not_asked.push_back(failure("the port", code));
    return port;
  }
  port.state = state_text(attributes.state);
  port.link_layer = layer_text(attributes.link_layer);
  port.speed_mbit = infiniband_mbit(attributes.active_width, attributes.active_speed);
  port.mtu = mtu_bytes(attributes.active_mtu);
  port.mtu_max = mtu_bytes(attributes.max_mtu);
  port.lid = attributes.lid;
  add_gids(verbs, context, attributes.gid_tbl_len, port);
  return port;
}

RdmaDevice ask_device(const VerbsFunctions& verbs, ibv_device* raw) {
  RdmaDevice device;
  device.name = verbs.get_device_name(raw);
  device.guid = be64toh(verbs.get_device_guid(raw));
  std::error_code failed;
  const auto target = std::filesystem::canonical(std::filesystem::path(raw->ibdev_path) / "device", failed);
  if (!failed) device.bus_id = BusId::parse(target.filename().string());
  errno = 0;
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(verbs.open_device(raw),
                                                                    verbs.close_device);
  if (context == nullptr) {
    device.not_asked.push_back(errno == 0 ? "it cannot be opened" : failure("it cannot be opened", errno));
    return device;
  }
  ibv_device_attr about{};
  if (const int code = verbs.query_device(context.get(), &about); code != 0) {
    device.not_asked.push_back(failure("its ports and limits", code));
    return device;
  }
  device.firmware = about.fw_ver;
  device.max_queue_pairs = about.max_qp;
  device.max_completions = about.max_cqe;
  for (int port = 1; port <= about.phys_port_cnt; ++port)
    device.ports.push_back(ask_port(verbs, context.get(), port));
  return device;
}

}  // namespace

Result<std::vector<RdmaDevice>> query_rdma_devices(const std::string& library_name) {
  EPCCL_ASSIGN(const DynamicLibrary library, DynamicLibrary::open(library_name));
  const VerbsFunctions verbs(library);
  if (!verbs.complete) return error(Code::system_error, "{} lacks a function that is needed", library_name);
  std::vector<RdmaDevice> devices;
  int count = 0;
  ibv_device** raw = verbs.get_device_list(&count);
  if (raw == nullptr) return devices;  // no RDMA in this kernel
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(raw, verbs.free_device_list);
  for (int i = 0; i < count; ++i) devices.push_back(ask_device(verbs, raw[i]));
  return devices;
}
#else
Result<std::vector<RdmaDevice>> query_rdma_devices(const std::string&) {
  return error(Code::system_error, "not built in: its header was not found");
}
#endif

}  // namespace epccl::topology
