// One allocation of GPU memory, freed when it ends, and how it is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "device/cuda/context.hpp"
#include "device/cuda/descriptor_server.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

/// The opaque part of a handle whose memory is shared by descriptor.
struct SharedDescriptor {
  DescriptorTicket ticket;
  uint64_t bytes = 0;  // in whole pages of the exporting GPU
};

/// MemoryHandle::form of the CUDA backend.
enum class HandleForm : uint8_t {
  descriptor,  // VMM: opaque is a SharedDescriptor
  cuda_ipc,    // opaque is a CUipcMemHandle
};

class Allocation {
 public:
  virtual ~Allocation() = default;
  virtual uint64_t base() const = 0;
  virtual uint64_t bytes() const = 0;  // as asked for
  virtual MemoryKind kind() const = 0;
  /// Fills form and opaque. Any thread, several at once.
  virtual Status describe(MemoryHandle& handle) = 0;
};

/// cuMemAlloc: plain, or shareable by CUDA IPC.
Result<std::unique_ptr<Allocation>> allocate_plain(const Context& context, MemoryKind kind, uint64_t bytes);

/// Physical memory mapped at a reserved address, shareable by descriptor. `is_for_cards`: network cards are to reach it, too (GPUDirect).
/// `result`: what the driver said last, which is why where it fails.
Result<std::unique_ptr<Allocation>> allocate_mapped(const Context& context, uint64_t bytes, bool is_for_cards,
                                                    CUresult& result);

/// Host memory that the GPU reads and writes directly.
Result<std::unique_ptr<Allocation>> allocate_pinned(const Context& context, uint64_t bytes);

/// One allocation, which need not be this library's, as CUDA IPC shares it. The driver is asked once: what it says stays true for as
/// long as the allocation lives.
class IpcExport {
 public:
  /// Fills form and opaque. `base`: of the allocation. Any thread, several at once.
  Status describe(const Context& context, uint64_t base, MemoryHandle& handle);

 private:
  std::mutex mutex_;  // while the driver is asked
  std::optional<CUipcMemHandle> known_;
};

/// The memory that a process has offered by descriptor, this one too. To be released.
Result<CUmemGenericAllocationHandle> import_descriptor(const Context& context,
                                                       const SharedDescriptor& shared);

/// A descriptor's memory, reserved and mapped for this GPU.
class MappedRange {
 public:
  /// `result`: as of allocate_mapped().
  static Result<std::unique_ptr<MappedRange>> map(const Context& context, CUmemGenericAllocationHandle memory,
                                                  uint64_t bytes, CUresult& result);
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  ~MappedRange();
  CUdeviceptr base() const { return base_; }

 private:
  MappedRange(const Context& context, uint64_t bytes) : context_(context), bytes_(bytes) {}
  const Context& context_;
  const uint64_t bytes_;
  CUdeviceptr base_ = 0;
  bool is_mapped_ = false;
};

}  // namespace epccl::device::cuda
