// Whether NVIDIA's kernel module is there, told without loading anything of CUDA.
#pragma once

#include <unistd.h>

namespace epccl {

/// The device files may be made by the first program that initialises the driver; the kernel's module tells before.
inline bool nvidia_driver_is_there() {
  for (const char* node :
       {"/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-ctrl-gpu"})
    if (access(node, F_OK) == 0) return true;
  return false;
}

}  // namespace epccl
