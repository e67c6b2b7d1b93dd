#include "transports/verbs/memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "device/host/host_memory.hpp"

namespace epccl::transports::verbs {
namespace {

constexpr int written_by_peers = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

Result<std::shared_ptr<const Region>> Region::create(const std::vector<std::unique_ptr<Rail>>& rails,
                                                     uintptr_t begin, size_t bytes, bool written) {
  auto region = std::make_shared<Region>();
  const int access = written ? written_by_peers : 0;
  for (const auto& rail : rails) {
    ibv_mr* registered =
        rail->library().reg_mr(rail->domain(), reinterpret_cast<void*>(begin), bytes, access);
    if (registered == nullptr) return registration_error(errno, rail->port().name(), bytes);
    region->regions_.emplace_back(registered, rail->library().dereg_mr);
  }
  return std::shared_ptr<const Region>(std::move(region));
}

Result<std::shared_ptr<const Region>> Region::of_device(const std::vector<std::unique_ptr<Rail>>& rails,
                                                        const device::LentMemory& memory, LentBy ways) {
  auto region = std::make_shared<Region>();
  Status no_descriptor = error(Code::invalid_usage, "EPCCL_GPU_DIRECT=peermem");
  if (ways != LentBy::address) no_descriptor = region->by_descriptor(rails, memory);
  if (no_descriptor.ok()) return std::shared_ptr<const Region>(std::move(region));
  Status no_module = error(Code::invalid_usage, "EPCCL_GPU_DIRECT=dmabuf");
  if (ways != LentBy::descriptor) no_module = region->by_address(rails, memory);
  if (no_module.ok()) return std::shared_ptr<const Region>(std::move(region));
  return error(Code::system_error, "by dma-buf: {}; by address (nvidia_peermem): {}", no_descriptor.message(),
               no_module.message());
}

Status Region::by_descriptor(const std::vector<std::unique_ptr<Rail>>& rails,
                             const device::LentMemory& memory) {
  if (!memory.descriptor) return {Code::invalid_usage, memory.without_descriptor};
  regions_.clear();
  way_ = "dma-buf";
  for (const auto& rail : rails) {
    if (rail->library().reg_dmabuf_mr == nullptr)
      return {Code::system_error, "libibverbs lacks ibv_reg_dmabuf_mr"};
    ibv_mr* registered = rail->library().reg_dmabuf_mr(rail->domain(), 0, memory.bytes, memory.address,
                                                       memory.descriptor.get(), written_by_peers);
    if (registered == nullptr) return registration_error(errno, rail->port().name(), memory.bytes);
    regions_.emplace_back(registered, rail->library().dereg_mr);
  }
  return {};
}

Status Region::by_address(const std::vector<std::unique_ptr<Rail>>& rails, const device::LentMemory& memory) {
  regions_.clear();
  way_ = "nvidia_peermem";
  for (const auto& rail : rails) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the GPU
    ibv_mr* registered = rail->library().reg_mr(rail->domain(), reinterpret_cast<void*>(memory.address),
                                                memory.bytes, written_by_peers);
    if (registered == nullptr) return registration_error(errno, rail->port().name(), memory.bytes);
    regions_.emplace_back(registered, rail->library().dereg_mr);
  }
  return {};
}

Result<std::shared_ptr<const Region>> RegisteredMemory::get(const std::vector<std::unique_ptr<Rail>>& rails,
                                                            const void* data, size_t bytes, bool written,
                                                            uint64_t& registrations) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (keep_ == Keep::watched && !std::exchange(looked_for_watch_, true) &&
      (watch_ = MemoryWatch::get()) != nullptr)
    position_ = watch_->now();
  const auto found = keep_ == Keep::nothing ? std::nullopt : device::find_window(data, bytes);
  const uint64_t window = found ? found->inode : 0;
  if (watch_ == nullptr && window == 0) {
    ++registrations;
    return Region::create(rails, begin, bytes, written);
  }
  hear_of_changes();
  // Regions begin in order, but a longer one may begin earlier: of those before `begin` the nearest few are looked at.
  int looks = 4;
  for (auto next = regions_.upper_bound(begin); next != regions_.begin() && looks > 0; --looks) {
    --next;
    if (next->second.end < begin + bytes || next->second.window != window) continue;
    next->second.used = ++uses_;
    return next->second.region;
  }
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const MemoryWatch::Range pages{begin / page * page, (begin + bytes + page - 1) / page * page};
  ++registrations;
  const bool watched = watch_ != nullptr && watch_->watch(pages);
  // Keys are for both directions: what is sent now may be received into later.
  auto region = watched || window != 0
                    ? Region::create(rails, pages.begin, pages.end - pages.begin, true)
                    : Result<std::shared_ptr<const Region>>(error(Code::system_error, "unwatched"));
  if (!region.ok()) {
    // Memory that may only be read, or of which too much is registered.
    if (watched || window != 0) regions_.clear();
    return Region::create(rails, begin, bytes, written);
  }
  make_room();
  regions_[pages.begin] = {pages.end, window, *region, ++uses_};
  return region;
}

void RegisteredMemory::tidy() {
  if (regions_.empty()) return;
  hear_of_changes();
  if (const uint64_t freed = device::windows_freed(); std::exchange(windows_freed_, freed) != freed)
    forget_freed_windows();
}

void RegisteredMemory::hear_of_changes() {
  if (watch_ != nullptr && !watch_->catch_up(position_, [this](MemoryWatch::Range range) { forget(range); }))
    regions_.clear();
}

void RegisteredMemory::forget_freed_windows() {
  std::erase_if(regions_, [](const auto& kept) {
    if (kept.second.window == 0) return false;
    const auto found = device::find_window(reinterpret_cast<const void*>(kept.first), 1);
    return !found || found->inode != kept.second.window;
  });
}

void RegisteredMemory::forget(MemoryWatch::Range range) {
  std::erase_if(regions_, [range](const auto& kept) {
    return kept.first < range.end && range.begin < kept.second.end;
  });
}

void RegisteredMemory::make_room() {
  if (regions_.size() < most) return;
  regions_.erase(std::min_element(regions_.begin(), regions_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

}  // namespace epccl::transports::verbs
