// GPU memory for other devices of the machine, such as network cards (GPUDirect RDMA).
#pragma once

#include "device/cuda/context.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

class Lending {
 public:
  explicit Lending(const Context& context);

  /// Device::lend().
  Result<LentMemory> lend(const void* address, uint64_t bytes) const;
  /// Device::admit_foreign_writes().
  Status admit_writes() const;

 private:
  Status check(const void* address) const;
  Result<UniqueFd> descriptor(uint64_t address, uint64_t bytes) const;

  const Context& context_;
  bool gives_descriptors_;
  bool has_peer_memory_;  // a module of the kernel can find its pages by address
  enum class Order : uint8_t { by_itself, by_flush, never } order_;
};

}  // namespace epccl::device::cuda
