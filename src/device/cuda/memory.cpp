#include "device/cuda/memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "device/cuda/identity.hpp"
#include "device/held_streams.hpp"

namespace epccl::device::cuda {
namespace {

// Numbers of allocations of this library and of the driver's never meet.
constexpr uint64_t own_number(uint64_t number) {
  return number * 2;
}
constexpr uint64_t drivers_number(uint64_t id) {
  return id * 2 + 1;
}

// Of all GPUs: one address means the same to all of them, and so must what tells its allocations apart.
std::atomic<uint64_t> allocations = 0;

constexpr double longest_settling = 1;  // seconds

std::byte* pointer(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): the driver's type
}

}  // namespace

CUresult find_pointer(const Driver& driver, const void* address, std::optional<PointerFacts>& facts) {
  // Of an address that is not the driver's every attribute is zero, and that is no error.
  CUmemorytype type{};
  CUdeviceptr base = 0;
  size_t bytes = 0;
  unsigned long long id = 0;
  int ordinal = 0, has_ipc = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_BUFFER_ID,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  std::array<void*, attributes.size()> values{&type, &base, &bytes, &id, &ordinal, &has_ipc};
  const CUresult result =
      driver.pointer_attributes(static_cast<unsigned>(attributes.size()), attributes.data(), values.data(),
                                reinterpret_cast<CUdeviceptr>(address));
  facts.reset();
  if (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE)
    facts = PointerFacts{base, bytes, id, ordinal, has_ipc != 0};
  return result;
}

std::optional<PointerFacts> find_pointer(const Context& context, const void* address) {
  const CurrentContext current(context);
  std::optional<PointerFacts> facts;
  if (current.status().ok()) find_pointer(context.driver(), address, facts);
  return facts;
}

// Of virtual memory, which CUDA IPC does not share, the driver tells the range that was reserved, of which parts may be mapped, by and by,
// one allocation each.
MemoryInfo info_of(const PointerFacts& facts) {
  if (!facts.has_ipc) return {DeviceKind::cuda, facts.ordinal, false};
  return {DeviceKind::cuda, facts.ordinal, facts.has_ipc,
          facts.base,       facts.bytes,   facts.id == 0 ? 0 : make_generation(drivers_number(facts.id))};
}

Memory::Memory(const Context& context)
    : context_(context),
      place_(context.place()),
      is_for_cards_(context.attribute_or_zero(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) !=
                    0) {}

// Some platforms say that network cards can reach such memory, and then refuse to make it.
Result<std::unique_ptr<Allocation>> Memory::make_mapped(uint64_t bytes, CUresult& result) {
  const bool is_for_cards = is_for_cards_;
  auto mapped = allocate_mapped(context_, bytes, is_for_cards, result);
  if (mapped.ok() || !is_for_cards || result == CUDA_ERROR_OUT_OF_MEMORY) return mapped;
  CUresult ignored = CUDA_SUCCESS;
  auto without = allocate_mapped(context_, bytes, false, ignored);
  if (!without.ok() && ignored == CUDA_ERROR_OUT_OF_MEMORY) {
    result = ignored;
    return without;
  }
  if (!without.ok()) return mapped;
  if (is_for_cards_.exchange(false))
    log::info(log::shm, -1,
              "GPU {}: memory that is shared by descriptor is made without GPUDirect RDMA, with which it "
              "failed: {}",
              context_.ordinal(), mapped.status().message());
  return without;
}

// That it can be made does not say that it can be shared: an export or an import may be refused, or the way of a descriptor from
// process to process (old drivers, MPS, containers).
Status Memory::try_sharing(Allocation& mapped) const {
  MemoryHandle handle;
  EPCCL_TRY(mapped.describe(handle));
  SharedDescriptor shared;
  std::memcpy(&shared, handle.opaque.data(), sizeof shared);
  EPCCL_ASSIGN(const CUmemGenericAllocationHandle memory, import_descriptor(context_, shared));
  context_.driver().mem_release(memory);
  return {};
}

// For good, also after a failure that may pass: peers can map either kind.
void Memory::share_by_ipc(const Status& refusal) {
  if (shares_by_descriptor_.exchange(false))
    log::info(log::shm, -1, "GPU {}: memory is shared by CUDA IPC, since sharing by descriptor failed: {}",
              context_.ordinal(), refusal.message());
}

Result<std::unique_ptr<Allocation>> Memory::make_shareable(uint64_t bytes) {
  const std::string wish = settings::get("EPCCL_CUDA_SHARE");
  if (wish != "ipc" && shares_by_descriptor_ && context_.driver().has_vmm() &&
      context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
      context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0) {
    CUresult result = CUDA_SUCCESS;
    auto mapped = make_mapped(bytes, result);
    if (wish == "descriptor" || (mapped.ok() && has_tried_sharing_)) return mapped;
    const Status refusal = mapped.ok() ? try_sharing(**mapped) : mapped.status();
    if (refusal.ok()) {
      has_tried_sharing_ = true;
      return mapped;
    }
    if (mapped.ok()) {
      share_by_ipc(refusal);
      // What cannot be shared makes room for what can. To unmap it may wait for the GPU: allocate() then settles, and tries again.
      HeldStreams::when_none(
          [gone = std::shared_ptr<Allocation>(std::move(*mapped))]() mutable { gone.reset(); });
      return allocate_plain(context_, MemoryKind::shareable, bytes);
    }
    auto plain = allocate_plain(context_, MemoryKind::shareable, bytes);
    if (!plain.ok()) return mapped;                                 // no memory, rather than no such feature
    if (result != CUDA_ERROR_OUT_OF_MEMORY) share_by_ipc(refusal);  // else some has come free since
    return plain;
  }
  if (wish == "descriptor")
    return error(Code::invalid_usage,
                 "EPCCL_CUDA_SHARE=descriptor, but GPU {} or its driver (CUDA {}) cannot share memory so",
                 context_.ordinal(), version_text(context_.driver().version));
  return allocate_plain(context_, MemoryKind::shareable, bytes);
}

Result<std::unique_ptr<Allocation>> Memory::make(MemoryKind kind, uint64_t bytes) {
  if (kind == MemoryKind::shareable) return make_shareable(bytes);
  return kind == MemoryKind::plain ? allocate_plain(context_, kind, bytes) : allocate_pinned(context_, bytes);
}

Result<void*> Memory::allocate(MemoryKind kind, uint64_t bytes) {
  if (bytes == 0) return error(Code::invalid_argument, "an allocation of 0 bytes");
  auto made = make(kind, bytes);
  // What was freed while a stream was held may not be free yet.
  if (!made.ok() && HeldStreams::settle(longest_settling)) made = make(kind, bytes);
  if (!made.ok()) return std::move(made).take_status();
  const uint64_t base = (*made)->base();
  // Freed by whoever lets go of it last: one thread may be sharing what another frees.
  std::shared_ptr<Allocation> allocation(made->release(), [](Allocation* gone) {
    HeldStreams::when_none([freed = std::shared_ptr<Allocation>(gone)]() mutable { freed.reset(); });
  });
  const std::lock_guard lock(mutex_);
  owned_[base] = Owned{std::move(allocation), make_generation(own_number(++allocations))};
  return static_cast<void*>(pointer(base));
}

Status Memory::free(void* address) {
  Owned gone;
  {
    const std::lock_guard lock(mutex_);
    const auto it = owned_.find(reinterpret_cast<uint64_t>(address));
    if (it == owned_.end())
      return error(Code::invalid_argument, "{} was not allocated on GPU {}, or is freed already", address,
                   context_.ordinal());
    gone = std::move(it->second);
    owned_.erase(it);
    if (gone.allocation->kind() == MemoryKind::shareable)
      freed_[told_frees_++ % freed_.size()] = gone.generation;
  }
  frees_.fetch_add(1, std::memory_order_release);
  return {};
}

const Memory::Owned* Memory::find(uint64_t address, uint64_t bytes) const {
  auto it = owned_.upper_bound(address);
  if (it == owned_.begin()) return nullptr;
  --it;
  const uint64_t offset = address - it->first, size = it->second.allocation->bytes();
  return offset < size && bytes <= size - offset ? &it->second : nullptr;
}

std::optional<MemoryInfo> Memory::info(const void* address) const {
  {
    const std::shared_lock lock(mutex_);
    if (const Owned* owned = find(reinterpret_cast<uint64_t>(address), 0)) {
      const Allocation& allocation = *owned->allocation;
      if (allocation.kind() == MemoryKind::pinned) return std::nullopt;
      return MemoryInfo{DeviceKind::cuda,  context_.ordinal(), allocation.kind() == MemoryKind::shareable,
                        allocation.base(), allocation.bytes(), owned->generation};
    }
  }
  const auto facts = find_pointer(context_, address);
  if (!facts || facts->ordinal != context_.ordinal()) return std::nullopt;
  return info_of(*facts);
}

Result<MemoryHandle> Memory::describe(const void* address, uint64_t bytes, const Offer& offer) const {
  MemoryHandle handle;
  handle.device = DeviceKind::cuda;
  handle.ordinal = context_.ordinal();
  handle.pid = getpid();
  handle.place = place_;
  const auto start = reinterpret_cast<uint64_t>(address);
  std::shared_ptr<Allocation> own;
  {
    const std::shared_lock lock(mutex_);
    handle.frees = told_frees_;
    handle.freed = freed_;
    if (const Owned* owned = find(start, bytes)) {
      handle.base = owned->allocation->base();
      handle.size = owned->allocation->bytes();
      handle.offset = start - handle.base;
      handle.generation = owned->generation;
      own = owned->allocation;
    }
  }
  if (own != nullptr) {
    EPCCL_TRY(own->describe(handle));
    return handle;
  }
  const auto facts = find_pointer(context_, address);
  if (!facts || facts->ordinal != context_.ordinal())
    return error(Code::invalid_argument, "{} is not memory of GPU {}", address, context_.ordinal());
  if (!facts->has_ipc)
    return error(Code::invalid_usage,
                 "memory at {} on GPU {} cannot be shared with other processes: managed or stream-ordered "
                 "memory, or of "
                 "an allocator that did not ask for it",
                 address, context_.ordinal());
  handle.base = facts->base;
  handle.size = facts->bytes;
  handle.offset = start - handle.base;
  if (bytes > handle.size - handle.offset)
    return error(Code::invalid_argument,
                 "{} bytes at {} on GPU {} exceed their allocation of {} bytes at {:#x}", bytes, address,
                 context_.ordinal(), handle.size, handle.base);
  handle.generation = make_generation(drivers_number(facts->id));
  EPCCL_ASSIGN(const std::shared_ptr<IpcExport> exported, export_of(*facts, offer));
  EPCCL_TRY(exported->describe(context_, handle.base, handle));
  return handle;
}

// Nobody tells when the user frees memory: another allocation at the same address has another id.
//
// Other processes have what was there before open, and the driver opens nothing where something is open. To close that in the call that finds
// it out would be too late: to close waits for all streams, also for the one that waits for the call. So such memory is not shared until
// they have said that they have closed it:
//
//   owner                                             readers
//   handle of B, at A's place: refused
//   any other handle: A is gone       ------------->  let go of A, close it when no stream waits
//                                     <-------------  what was gone by then is closed (closed_by())
//   handle of B                       ------------->  open B
Result<std::shared_ptr<IpcExport>> Memory::export_of(const PointerFacts& facts, const Offer& offer) const {
  const std::lock_guard lock(mutex_);
  if (const auto known = exports_.find(facts.base);
      known != exports_.end() && known->second.id == facts.id && facts.id != 0 && known->second.gone == 0) {
    known->second.give(offer);
    return known->second.as;
  }
  if (is_where_another_is_open(facts))
    return error(
        Code::invalid_usage,
        "memory at {:#x} on GPU {} was allocated where other memory was, which other processes have open",
        facts.base, context_.ordinal());
  if (!offer.is_given) return std::make_shared<IpcExport>();
  Exported& made = exports_[facts.base] = {facts.id, facts.bytes, std::make_shared<IpcExport>()};
  made.give(offer);
  return made.as;
}

void Memory::Exported::give(const Offer& offer) {
  if (!offer.is_given) return;
  if (offer.readers == nullptr) {
    has_unknown_readers = true;
    return;
  }
  for (const pid_t reader : *offer.readers)
    if (std::ranges::find(readers, reader) == readers.end()) readers.push_back(reader);
}

void Memory::closed_by(pid_t reader, uint64_t frees) {
  const std::lock_guard lock(mutex_);
  uint64_t& known = closed_[reader];
  known = std::max(known, frees);
}

/// The mutex is held.
bool Memory::is_closed(const Exported& exported) const {
  return !exported.has_unknown_readers && std::ranges::all_of(exported.readers, [&](pid_t reader) {
    const auto known = closed_.find(reader);
    return known != closed_.end() && known->second >= exported.gone;
  });
}

/// The mutex is held. Peers hear of what is gone by the next handle, and close it when nothing waits.
bool Memory::is_where_another_is_open(const PointerFacts& facts) const {
  bool is_open = false;
  for (auto it = exports_.begin(); it != exports_.end() && it->first < facts.base + facts.bytes;) {
    Exported& other = it->second;
    const bool is_same = other.id == facts.id && other.gone == 0;
    if (is_same || facts.base >= it->first + other.size) {
      ++it;
      continue;
    }
    if (other.gone == 0) {
      freed_[told_frees_++ % freed_.size()] = make_generation(drivers_number(other.id));
      other.gone = told_frees_;
    }
    const bool is_over = is_closed(other);
    is_open |= !is_over;
    it = is_over ? exports_.erase(it) : std::next(it);
  }
  return is_open;
}

// ---- of others

/// A peer's allocation, mapped once for all of this process that use it.
class Memory::Import {
 public:
  Import(const Context& context, IpcMappings& ipc_mappings)
      : context_(context), ipc_mappings_(ipc_mappings) {}
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;
  // That no stream is held then is all that is needed: what is closed has no users any more.
  ~Import() {
    if (opened_ != nullptr) ipc_mappings_.end(std::move(opened_));
    if (range_ != nullptr) HeldStreams::when_none([range = std::move(range_)]() mutable { range.reset(); });
  }

  /// Once, whichever thread is first.
  Status open(const MemoryHandle& handle) {
    const auto lock = lock_as_a_call(mutex_, "the mapping of the same memory by another thread");
    if (base() == 0) EPCCL_TRY(open_now(handle));
    return {};
  }
  uint64_t base() const { return range_ ? range_->base() : opened_ ? opened_->at : 0; }

 private:
  Status open_now(const MemoryHandle& handle) {
    EPCCL_CURRENT(context_);
    switch (static_cast<HandleForm>(handle.form)) {
      case HandleForm::descriptor:
        return open_descriptor(handle);
      case HandleForm::cuda_ipc:
        return open_ipc(handle);
    }
    return error(Code::invalid_argument, "a memory handle of unknown form {}", handle.form);
  }
  Status open_ipc(const MemoryHandle& handle) {
    EPCCL_ASSIGN(opened_, ipc_mappings_.open(handle));
    return {};
  }
  Status open_descriptor(const MemoryHandle& handle) {
    SharedDescriptor shared;
    std::memcpy(&shared, handle.opaque.data(), sizeof shared);
    EPCCL_ASSIGN(const CUmemGenericAllocationHandle memory, import_descriptor(context_, shared));
    CUresult result = CUDA_SUCCESS;
    auto range = MappedRange::map(context_, memory, shared.bytes, result);
    if (range.ok()) range_ = std::move(*range);
    context_.driver().mem_release(memory);  // the mapping holds it
    return range.status();
  }

  const Context& context_;
  IpcMappings& ipc_mappings_;
  std::mutex mutex_;  // while it is being opened
  std::shared_ptr<MappedRange> range_;
  std::shared_ptr<const IpcMappings::Mapping> opened_;
};

class Memory::ImportedRange : public MappedMemory {
 public:
  ImportedRange(std::shared_ptr<Import> import, uint64_t start, uint64_t bytes)
      : import_(std::move(import)), start_(start), bytes_(bytes) {}
  std::byte* data() const override { return pointer(start_); }
  uint64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<Import> import_;  // null: memory of this process
  const uint64_t start_, bytes_;
};

Result<std::shared_ptr<Memory::Import>> Memory::import(const MemoryHandle& handle) {
  std::shared_ptr<Import> import;
  {
    const std::lock_guard lock(imports_mutex_);
    std::erase_if(imports_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Import>& known = imports_[{handle.base, handle.generation}];
    import = known.lock();
    if (import == nullptr) known = import = std::make_shared<Import>(context_, ipc_mappings_);
  }
  if (Status status = import->open(handle); !status.ok())
    return std::move(status).with_context(
        fmt::format("mapping {} bytes of GPU {} of process {}", handle.size, handle.ordinal, handle.pid));
  return import;
}

// What its context allocates with cuMemAlloc, now and later.
Status Memory::reach(int ordinal) {
  const Driver& driver = context_.driver();
  const auto refused = [&](Status why) {
    return std::move(why).with_context(
        fmt::format("GPU {} cannot use memory of GPU {} of the same process", context_.ordinal(), ordinal));
  };
  EPCCL_ASSIGN(const Context theirs, Context::retain(driver, ordinal));
  int can = 0;
  EPCCL_TRY(context_.call(driver.can_access_peer, &can, context_.device(), theirs.device()));
  if (can == 0) return refused({Code::device_error, "there is no peer access between them"});
  EPCCL_CURRENT(context_);
  const CUresult result = driver.enable_peer_access(theirs.handle(), 0);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return refused(driver_error(driver, driver.enable_peer_access.name, result, context_.ordinal()));
}

Result<std::unique_ptr<MappedMemory>> Memory::map(const MemoryHandle& handle) {
  if (handle.device != DeviceKind::cuda)
    return error(Code::invalid_argument, "GPU {} cannot map a handle of the {} device", context_.ordinal(),
                 to_string(handle.device));
  if (handle.offset > handle.size)
    return error(Code::invalid_argument, "a memory handle with offset {} beyond its {} bytes", handle.offset,
                 handle.size);
  const uint64_t bytes = handle.size - handle.offset;
  const bool is_here = is_of_this_process(handle.generation), is_own = handle.ordinal == context_.ordinal();
  // CUDA IPC opens nothing of its own process, and needs not: one address means the same to all GPUs of a process. A descriptor is
  // mapped once more, since access is a mapping's there.
  if (is_here && (is_own || static_cast<HandleForm>(handle.form) == HandleForm::cuda_ipc)) {
    if (!is_own) EPCCL_TRY(reach(handle.ordinal));
    return std::unique_ptr<MappedMemory>(
        std::make_unique<ImportedRange>(nullptr, handle.base + handle.offset, bytes));
  }
  EPCCL_ASSIGN(auto imported, import(handle));
  const uint64_t start = imported->base() + handle.offset;
  return std::unique_ptr<MappedMemory>(std::make_unique<ImportedRange>(std::move(imported), start, bytes));
}

}  // namespace epccl::device::cuda
