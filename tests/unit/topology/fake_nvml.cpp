// The part of NVIDIA's management library that discovery uses, for a machine that does not exist: GPUs 0 and
// 1 have two links to each other and one to a switch that PCI does not show; GPU 2 has no links; GPU 3 is not
// accessible.
#include <cstdio>
#include <cstring>

namespace {

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Device {
  unsigned index;
};
Device devices[4] = {{0}, {1}, {2}, {3}};
int initialised = 0;

constexpr int success = 0, invalid_argument = 2, no_permission = 4;

void fill(PciInfo* info, unsigned bus) {
  std::memset(info, 0, sizeof *info);
  std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:00.0", 0u, bus);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++initialised;
  return success;
}
int nvmlShutdown() {
  --initialised;
  return success;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return initialised > 0 ? success : invalid_argument;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
  if (index == 3) return no_permission;
  *device = &devices[index];
  return success;
}
int nvmlDeviceGetPciInfo_v3(Device* device, PciInfo* info) {
  fill(info, 0x40 + device->index);
  return success;
}
int nvmlDeviceGetName(Device*, char* name, unsigned length) {
  std::snprintf(name, length, "Imaginary GPU");
  return success;
}
int nvmlDeviceGetCudaComputeCapability(Device*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return success;
}
int nvmlDeviceGetNvLinkState(Device* device, unsigned link, int* active) {
  if (device->index > 1 || link >= 18) return invalid_argument;
  *active = link < 3 ? 1 : 0;
  return success;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device* device, unsigned link, PciInfo* info) {
  fill(info, 0x40 + (1 - device->index));
  if (link == 2) std::memset(info, 0, sizeof *info);
  return success;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device*, unsigned link, int* type) {
  *type = link == 2 ? 2 : 0;
  return success;
}

}  // extern "C"
