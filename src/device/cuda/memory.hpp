// All memory that one GPU gives and that it maps of others.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <vector>

#include "device/cuda/allocation.hpp"
#include "device/cuda/ipc_mappings.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

/// What the driver says of an address of a GPU.
struct PointerFacts {
  uint64_t base = 0, bytes = 0;  // virtual memory: of what was reserved, mapped or not
  uint64_t id = 0;               // of the allocation, in this process
  int ordinal = 0;
  bool has_ipc = false;  // CUDA IPC can export it
};
/// `facts` is nothing where the driver knows no GPU's memory there.
CUresult find_pointer(const Driver& driver, const void* address, std::optional<PointerFacts>& facts);
std::optional<PointerFacts> find_pointer(const Context& context, const void* address);
MemoryInfo info_of(const PointerFacts& facts);

class Memory {
 public:
  explicit Memory(const Context& context);

  Result<void*> allocate(MemoryKind kind, uint64_t bytes);
  Status free(void* address);
  std::optional<MemoryInfo> info(const void* address) const;
  // As Device::export_memory() and so on.
  Result<MemoryHandle> describe(const void* address, uint64_t bytes,
                                const std::vector<pid_t>* readers) const {
    return describe(address, bytes, Offer{true, readers});
  }
  Status can_describe(const void* address, uint64_t bytes) const {
    return describe(address, bytes, Offer{}).take_status();
  }
  void closed_by(pid_t reader, uint64_t frees);
  Result<std::unique_ptr<MappedMemory>> map(const MemoryHandle& handle);
  /// Of the GPU, as MemoryHandle::place.
  uint64_t place() const { return place_; }
  uint64_t frees() const { return frees_.load(std::memory_order_acquire); }

 private:
  struct Owned {
    std::shared_ptr<Allocation> allocation;
    uint64_t generation;
  };
  /// What a description is for.
  struct Offer {
    bool is_given = false;                        // else it is only asked for
    const std::vector<pid_t>* readers = nullptr;  // whom; null: whoever
  };
  /// An allocation of the user's that was exported.
  struct Exported {
    uint64_t id = 0;  // the driver's
    uint64_t size = 0;
    std::shared_ptr<IpcExport> as;
    // Which of told_frees_ it was, counted from 1, once other memory was found there; 0: it may be there.
    uint64_t gone = 0;
    std::vector<pid_t> readers = {};
    bool has_unknown_readers = false;

    void give(const Offer& offer);
  };
  class Import;
  class ImportedRange;
  using ImportKey = std::tuple<uint64_t, uint64_t>;  // base, generation

  Result<std::unique_ptr<Allocation>> make(MemoryKind kind, uint64_t bytes);
  Result<std::unique_ptr<Allocation>> make_shareable(uint64_t bytes);
  Result<std::unique_ptr<Allocation>> make_mapped(uint64_t bytes, CUresult& result);
  Status try_sharing(Allocation& mapped) const;
  void share_by_ipc(const Status& refusal);
  const Owned* find(uint64_t address, uint64_t bytes) const;
  Result<MemoryHandle> describe(const void* address, uint64_t bytes, const Offer& offer) const;
  Result<std::shared_ptr<IpcExport>> export_of(const PointerFacts& facts, const Offer& offer) const;
  bool is_closed(const Exported& exported) const;
  bool is_where_another_is_open(const PointerFacts& facts) const;
  Result<std::shared_ptr<Import>> import(const MemoryHandle& handle);
  Status reach(int ordinal);

  const Context& context_;
  const uint64_t place_;
  // Not held while the driver allocates, frees, maps or shares, which may wait for what others need this for.
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Owned> owned_;               // by base
  mutable std::map<uint64_t, Exported> exports_;  // by base: of what was there when it was last given away
  std::map<pid_t, uint64_t> closed_;              // by reader: as closed_by()
  mutable uint64_t told_frees_ = 0;               // as MemoryHandle::frees
  mutable decltype(MemoryHandle::freed) freed_{};
  std::atomic<uint64_t> frees_ = 0;
  std::atomic<bool> shares_by_descriptor_ = true;  // until the platform refused it
  std::atomic<bool> has_tried_sharing_ = false;    // and this process could
  std::atomic<bool> is_for_cards_;                 // what is shared so; until that is refused

  IpcMappings ipc_mappings_{context_};
  std::mutex imports_mutex_;
  std::map<ImportKey, std::weak_ptr<Import>> imports_;
};

}  // namespace epccl::device::cuda
