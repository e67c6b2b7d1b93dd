#include "device/cuda/lending.hpp"

#include <unistd.h>

#include <array>

#include "device/cuda/memory.hpp"

namespace epccl::device::cuda {

Lending::Lending(const Context& context)
    : context_(context),
      gives_descriptors_(context.driver().range_handle &&
                         context.attribute_or_zero(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0),
      has_peer_memory_(context.attribute_or_zero(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0) {
  const int order = context.attribute_or_zero(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  const int flushes = context.attribute_or_zero(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  const bool can_flush =
      context.driver().flush_remote_writes && (flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  // Other GPUs of the node read what a card has written, too: peers fetch parts out of scratch.
  order_ = order >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES ? Order::by_itself
           : can_flush                                             ? Order::by_flush
                                                                   : Order::never;
}

Status Lending::check(const void* address) const {
  const auto facts = find_pointer(context_, address);
  if (!facts || facts->ordinal != context_.ordinal())
    return error(Code::invalid_argument, "{} is not memory of GPU {}", address, context_.ordinal());
  if (!gives_descriptors_ && !has_peer_memory_)
    return error(Code::invalid_usage,
                 "GPU {} lets no other device reach its memory (CUDA {}: no dma-buf, no GPUDirect RDMA)",
                 context_.ordinal(), version_text(context_.driver().version));
  if (order_ == Order::never)
    return error(Code::invalid_usage,
                 "GPUs may not see what other devices write into memory of GPU {}, and its driver "
                 "(CUDA {}) cannot flush that",
                 context_.ordinal(), version_text(context_.driver().version));
  // Its pages wander between host and GPU. A card that was given those on the host would go on using them.
  EPCCL_CURRENT(context_);
  int managed = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_IS_MANAGED};
  std::array<void*, 1> values{&managed};
  EPCCL_TRY(context_.call(context_.driver().pointer_attributes, 1U, attributes.data(), values.data(),
                          reinterpret_cast<CUdeviceptr>(address)));
  if (managed != 0)
    return error(Code::invalid_usage, "{} is managed memory: its pages do not stay on GPU {}", address,
                 context_.ordinal());
  return {};
}

Result<LentMemory> Lending::lend(const void* address, uint64_t bytes) const {
  EPCCL_TRY(check(address));
  static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uint64_t>(address);
  LentMemory lent;
  lent.address = begin / page * page;
  lent.bytes = (begin + bytes + page - 1) / page * page - lent.address;
  auto descriptor = this->descriptor(lent.address, lent.bytes);
  if (descriptor.ok()) {
    lent.descriptor = std::move(descriptor).value();
  } else if (has_peer_memory_) {
    lent.without_descriptor = descriptor.status().message();
  } else {
    return std::move(descriptor).take_status();
  }
  return lent;
}

Result<UniqueFd> Lending::descriptor(uint64_t address, uint64_t bytes) const {
  if (!gives_descriptors_)
    return error(Code::invalid_usage, "GPU {} or its driver (CUDA {}) has no dma-buf", context_.ordinal(),
                 version_text(context_.driver().version));
  EPCCL_CURRENT(context_);
  int fd = -1;
  EPCCL_TRY(context_.call(context_.driver().range_handle, static_cast<void*>(&fd),
                          static_cast<CUdeviceptr>(address), static_cast<size_t>(bytes),
                          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ULL));
  return UniqueFd(fd);
}

Status Lending::admit_writes() const {
  if (order_ == Order::by_itself) return {};
  EPCCL_CURRENT(context_);
  return context_.call(context_.driver().flush_remote_writes,
                       CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                       CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
}

}  // namespace epccl::device::cuda
