// The part of libibverbs that discovery uses, for devices that do not exist: "mlx5_0" with an active HDR
// InfiniBand port and an Ethernet port that is down, and "broken", which cannot be opened.
#include <endian.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>

#undef ibv_get_device_list
#undef ibv_query_port

namespace {

ibv_device devices[2];
ibv_device* list[3] = {&devices[0], &devices[1], nullptr};
ibv_context context;

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  std::strcpy(devices[0].name, "mlx5_0");
  std::strcpy(devices[0].ibdev_path, "/nonexistent/mlx5_0");
  std::strcpy(devices[1].name, "broken");
  *count = 2;
  return list;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}
__be64 ibv_get_device_guid(ibv_device*) {
  return htobe64(0x0800380001bff8dc);
}
ibv_context* ibv_open_device(ibv_device* device) {
  return device == &devices[0] ? &context : nullptr;
}
int ibv_close_device(ibv_context*) {
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  attributes->phys_port_cnt = 2;
  attributes->max_qp = 1000;
  attributes->max_cqe = 4096;
  std::strcpy(attributes->fw_ver, "20.31.1014");
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t port, _compat_ibv_port_attr* older) {
  auto* attributes = reinterpret_cast<ibv_port_attr*>(older);  // whose first part it is
  attributes->state = port == 1 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->link_layer = port == 1 ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  attributes->active_width = 2;   // 4 lanes
  attributes->active_speed = 64;  // HDR
  attributes->active_mtu = IBV_MTU_2048;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->lid = port == 1 ? 0x2a : 0;
  attributes->gid_tbl_len = 4;
  return 0;
}
/// Port 1 has a GID; port 2 RoCE ones, a zero, and one that cannot be read.
int _ibv_query_gid_ex(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t, size_t) {
  std::memset(entry, 0, sizeof *entry);
  if (port == 1 && index > 0) return 0;
  if (index == 3) return ENODATA;
  if (index == 2) return 0;
  entry->gid_type = port == 1 ? IBV_GID_TYPE_IB : index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  const uint8_t link_local[] = {0xfe, 0x80}, ipv4[] = {0xff, 0xff, 10, 0, 0, 1};
  if (index == 0) std::memcpy(entry->gid.raw, link_local, sizeof link_local);
  if (index == 0) entry->gid.raw[15] = 1;
  if (index == 1) std::memcpy(entry->gid.raw + 10, ipv4, sizeof ipv4);
  return 0;
}

}  // extern "C"
