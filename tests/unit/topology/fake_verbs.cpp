// The part of libibverbs that discovery uses, for devices that do not exist: "mlx5_0" with an active HDR
// InfiniBand port and an Ethernet port that is down, and "broken", which cannot be opened.
#include <endian.h>
#include <infiniband/verbs.h>

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
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t port, _compat_ibv_port_attr* older) {
  auto* attributes = reinterpret_cast<ibv_port_attr*>(older);  // whose first part it is
  attributes->state = port == 1 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->link_layer = port == 1 ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  attributes->active_width = 2;   // 4 lanes
  attributes->active_speed = 64;  // HDR
  return 0;
}

}  // extern "C"
