// The CUDA devices of this process, over the driver that is found at run time. There is no CUDA type here: a build without the
// toolkit has the same functions, which say so.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.hpp"
#include "device/device.hpp"

namespace epccl::device {

/// GPU `ordinal` of this process (CUDA_VISIBLE_DEVICES counts); one object for the process, which lives as long as it does and
/// keeps the device's primary context. The error says what is missing: toolkit at build time, driver, GPU, a driver new enough.
Result<Device*> cuda_device(int ordinal);

/// How many GPUs there are; the error says why there can be none.
Result<int> cuda_device_count();

/// Where a GPU is on the PCI bus.
struct PciPlace {
  uint32_t domain = 0;
  uint8_t bus = 0, device = 0;
};
/// That of GPU `ordinal` of this process. Opens no context there.
Result<PciPlace> cuda_pci_place(int ordinal);

/// CUDA's version that the driver has, 13000 for 13.0; 0: there is none. Does not initialise the driver.
int cuda_driver_version();

/// Whether CUDA's memory can appear in this process at all; found out once, starts nothing.
bool cuda_possible();

/// The GPU whose context is the calling thread's; nothing where there is none. Does not initialise the driver.
std::optional<int> current_cuda_device();

/// Makes that GPU's primary context the calling thread's, for good.
Status set_current_cuda_device(int ordinal);

/// Which GPU's memory this is. Nothing for host memory, pinned too, and where CUDA is not in use. Does not initialise the driver.
std::optional<MemoryInfo> cuda_memory_at(const void* address);

/// Whether it is host memory that the driver knows: a GPU reads and writes it directly. Does not initialise the driver.
bool is_pinned_memory(const void* address);

}  // namespace epccl::device
