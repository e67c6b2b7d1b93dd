#include "device/cuda/allocation.hpp"

#include <fcntl.h>

#include <cstring>

namespace epccl::device::cuda {
namespace {

constexpr const char* sharing = "the sharing of the same memory by another thread";

Status not_shared(MemoryKind kind) {
  return error(Code::invalid_usage, "{} memory of a GPU cannot be shared with other processes",
               kind == MemoryKind::pinned ? "pinned" : "plain");
}

class Plain : public Allocation {
 public:
  Plain(const Context& context, MemoryKind kind, uint64_t bytes)
      : context_(context), kind_(kind), bytes_(bytes) {}
  ~Plain() override {
    const CurrentContext current(context_);
    if (base_ != 0) context_.driver().mem_free(base_);
  }
  Status allocate() { return context_.call(context_.driver().mem_alloc, &base_, bytes_); }
  uint64_t base() const override { return base_; }
  uint64_t bytes() const override { return bytes_; }
  MemoryKind kind() const override { return kind_; }
  Status describe(MemoryHandle& handle) override {
    if (kind_ != MemoryKind::shareable) return not_shared(kind_);
    return exported_.describe(context_, base_, handle);
  }

 private:
  const Context& context_;
  const MemoryKind kind_;
  const uint64_t bytes_;
  CUdeviceptr base_ = 0;
  IpcExport exported_;
};

CUmemAllocationProp properties(const Context& context, bool is_for_cards) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = context.device();
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.allocFlags.gpuDirectRDMACapable = is_for_cards ? 1 : 0;
  return wanted;
}

/// `bytes` in whole pages of such memory.
Result<uint64_t> whole_pages(const Context& context, const CUmemAllocationProp& wanted, uint64_t bytes,
                             CUresult& result) {
  size_t page = 0;
  EPCCL_TRY(context.call_for(result, context.driver().mem_granularity, &page, &wanted,
                             CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  return (bytes + page - 1) / page * page;
}

class Mapped : public Allocation {
 public:
  Mapped(const Context& context, uint64_t bytes, bool is_for_cards)
      : context_(context), bytes_(bytes), is_for_cards_(is_for_cards) {}
  ~Mapped() override {
    if (ticket_) withdraw_descriptor(*ticket_);
    const CurrentContext current(context_);
    range_.reset();
    if (memory_ != 0) context_.driver().mem_release(memory_);
  }
  Status allocate(CUresult& result) {
    const CUmemAllocationProp wanted = properties(context_, is_for_cards_);
    EPCCL_ASSIGN(pages_, whole_pages(context_, wanted, bytes_, result));
    EPCCL_TRY(context_.call_for(result, context_.driver().mem_create, &memory_, pages_, &wanted, 0ULL));
    EPCCL_ASSIGN(range_, MappedRange::map(context_, memory_, pages_, result));
    return {};
  }
  uint64_t base() const override { return range_->base(); }
  uint64_t bytes() const override { return bytes_; }
  MemoryKind kind() const override { return MemoryKind::shareable; }
  Status describe(MemoryHandle& handle) override {
    const auto lock = lock_as_a_call(mutex_, sharing);
    if (!ticket_) {
      int fd = -1;
      EPCCL_TRY(context_.call(context_.driver().mem_export, &fd, memory_,
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL));
      static_cast<void>(fcntl(fd, F_SETFD, FD_CLOEXEC));  // CUDA does not say whether it is
      EPCCL_ASSIGN(ticket_, offer_descriptor(UniqueFd(fd)));
    }
    const SharedDescriptor shared{*ticket_, pages_};
    static_assert(sizeof shared <= sizeof handle.opaque);
    handle.form = static_cast<uint8_t>(HandleForm::descriptor);
    std::memcpy(handle.opaque.data(), &shared, sizeof shared);
    return {};
  }

 private:
  const Context& context_;
  const uint64_t bytes_;
  const bool is_for_cards_;
  uint64_t pages_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  std::unique_ptr<MappedRange> range_;
  std::mutex mutex_;  // of the ticket, while the driver is asked
  std::optional<DescriptorTicket> ticket_;
};

class Pinned : public Allocation {
 public:
  Pinned(const Context& context, uint64_t bytes) : context_(context), bytes_(bytes) {}
  ~Pinned() override {
    const CurrentContext current(context_);
    if (address_ != nullptr) context_.driver().host_free(address_);
  }
  Status allocate() {
    return context_.call(context_.driver().host_alloc, &address_, bytes_,
                         static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  }
  uint64_t base() const override { return reinterpret_cast<uint64_t>(address_); }
  uint64_t bytes() const override { return bytes_; }
  MemoryKind kind() const override { return MemoryKind::pinned; }
  Status describe(MemoryHandle&) override { return not_shared(kind()); }

 private:
  const Context& context_;
  const uint64_t bytes_;
  void* address_ = nullptr;
};

/// Begins with the sizes: of pinned memory, which is the host's, the driver tells none that are free.
Status with_sizes(const Context& context, MemoryKind kind, Status status, uint64_t bytes) {
  if (kind == MemoryKind::pinned)
    return std::move(status).with_context(fmt::format("allocating {} bytes of pinned host memory", bytes));
  size_t free = 0, total = 0;
  if (context.driver().mem_info(&free, &total) != CUDA_SUCCESS)
    return std::move(status).with_context(fmt::format("allocating {} bytes", bytes));
  return std::move(status).with_context(
      fmt::format("allocating {} bytes where {} of {} are free", bytes, free, total));
}

template <typename Kind, typename... Results>
Result<std::unique_ptr<Allocation>> make(const Context& context, std::unique_ptr<Kind> allocation,
                                         Results&... results) {
  const uint64_t bytes = allocation->bytes();
  const MemoryKind kind = allocation->kind();
  EPCCL_CURRENT(context);
  if (Status status = allocation->allocate(results...); !status.ok())
    return with_sizes(context, kind, std::move(status), bytes);
  return std::unique_ptr<Allocation>(std::move(allocation));
}

}  // namespace

Result<std::unique_ptr<Allocation>> allocate_plain(const Context& context, MemoryKind kind, uint64_t bytes) {
  return make(context, std::make_unique<Plain>(context, kind, bytes));
}

Result<std::unique_ptr<Allocation>> allocate_mapped(const Context& context, uint64_t bytes, bool is_for_cards,
                                                    CUresult& result) {
  result = CUDA_SUCCESS;
  return make(context, std::make_unique<Mapped>(context, bytes, is_for_cards), result);
}

Result<std::unique_ptr<Allocation>> allocate_pinned(const Context& context, uint64_t bytes) {
  return make(context, std::make_unique<Pinned>(context, bytes));
}

Status IpcExport::describe(const Context& context, uint64_t base, MemoryHandle& handle) {
  const auto lock = lock_as_a_call(mutex_, sharing);
  if (!known_) {
    EPCCL_CURRENT(context);
    CUipcMemHandle ipc{};
    EPCCL_TRY(context.call(context.driver().ipc_get, &ipc, static_cast<CUdeviceptr>(base)));
    known_ = ipc;
  }
  handle.form = static_cast<uint8_t>(HandleForm::cuda_ipc);
  static_assert(sizeof *known_ == sizeof handle.opaque);
  std::memcpy(handle.opaque.data(), &*known_, sizeof *known_);
  return {};
}

Result<CUmemGenericAllocationHandle> import_descriptor(const Context& context,
                                                       const SharedDescriptor& shared) {
  EPCCL_CURRENT(context);
  EPCCL_ASSIGN(const UniqueFd fd, fetch_descriptor(shared.ticket));
  CUmemGenericAllocationHandle memory = 0;
  EPCCL_TRY(context.call(context.driver().mem_import, &memory,
                         reinterpret_cast<void*>(static_cast<intptr_t>(fd.get())),  // NOLINT
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return memory;
}

Result<std::unique_ptr<MappedRange>> MappedRange::map(const Context& context,
                                                      CUmemGenericAllocationHandle memory, uint64_t bytes,
                                                      CUresult& result) {
  const Driver& driver = context.driver();
  std::unique_ptr<MappedRange> range(new MappedRange(context, bytes));  // private constructor
  EPCCL_TRY(context.call_for(result, driver.mem_address_reserve, &range->base_, bytes, size_t{0},
                             CUdeviceptr{0}, 0ULL));
  EPCCL_TRY(context.call_for(result, driver.mem_map, range->base_, bytes, size_t{0}, memory, 0ULL));
  range->is_mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = context.device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EPCCL_TRY(context.call_for(result, driver.mem_set_access, range->base_, bytes,
                             static_cast<const CUmemAccessDesc*>(&access), size_t{1}));
  return range;
}

MappedRange::~MappedRange() {
  const CurrentContext current(context_);
  if (is_mapped_) context_.driver().mem_unmap(base_, bytes_);
  if (base_ != 0) context_.driver().mem_address_free(base_, bytes_);
}

}  // namespace epccl::device::cuda
