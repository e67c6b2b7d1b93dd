#include "transports/verbs/device_memory.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"

namespace epccl::transports::verbs {

constexpr double retry_period = 5;  // seconds, of what was refused

Result<std::shared_ptr<const DeviceRegion>> DeviceRegistrations::get(
    const std::vector<std::unique_ptr<Rail>>& rails, device::Device& device, const void* data, uint64_t bytes,
    uint64_t& registrations) {
  if (ways_ == LentBy::nothing) return error(Code::invalid_usage, "EPCCL_GPU_DIRECT=0");
  const auto info = device.info(data);
  if (!info) return error(Code::invalid_argument, "{} is not memory of {}", data, device.description());
  look_at_another();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto as_region = [&](std::shared_ptr<const Region> region) {
    return std::make_shared<const DeviceRegion>(device, begin, bytes, std::move(region));
  };
  // Several allocations side by side, or one that cannot be told from the next at its place: nobody says when it changes.
  if (info->generation == 0 || begin < info->base || bytes > info->size - (begin - info->base)) {
    EPCCL_ASSIGN(auto region, lent(rails, device, begin, bytes, registrations));
    return as_region(std::move(region));
  }
  const auto [entry, is_new] = allocations_.try_emplace({&device, info->base});
  Kept& kept = entry->second;
  const bool is_due = kept.region == nullptr && coarse_now_seconds() >= kept.again_at;
  if (is_new || kept.generation != info->generation || is_due) {
    kept = {};
    kept.generation = info->generation;
    kept.again_at = coarse_now_seconds() + retry_period;
    auto whole = lent(rails, device, info->base, info->size, registrations);
    if (whole.ok()) kept.region = std::move(whole).value();
    if (!whole.ok()) kept.why = std::move(whole).take_status();
    if (frees_.try_emplace(&device, device.frees()).second && kept.region != nullptr)
      log::info(log::net, -1, "memory of {} is registered by {}", device.description(), kept.region->way());
  }
  kept.used = ++uses_;
  const auto region = kept.region;
  const Status why = kept.why;
  make_room();
  if (region == nullptr) return why;
  return as_region(region);
}

Result<std::shared_ptr<const Region>> DeviceRegistrations::lent(
    const std::vector<std::unique_ptr<Rail>>& rails, const device::Device& device, uint64_t begin,
    uint64_t bytes, uint64_t& registrations) const {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the device
  EPCCL_ASSIGN(const device::LentMemory memory, device.lend(reinterpret_cast<const void*>(begin), bytes));
  ++registrations;
  return Region::of_device(rails, memory, ways_);
}

bool DeviceRegistrations::is_gone(const Allocations::value_type& entry) {
  const auto& [device, base] = entry.first;
  const auto info = device->info(reinterpret_cast<const void*>(base));  // NOLINT(performance-no-int-to-ptr)
  return !info || info->generation != entry.second.generation;
}

// Nobody tells of memory that the program frees by CUDA's own functions. So each call looks at one more.
void DeviceRegistrations::look_at_another() {
  if (allocations_.empty()) return;
  auto next = allocations_.upper_bound(looked_at_);
  if (next == allocations_.end()) next = allocations_.begin();
  looked_at_ = next->first;
  if (is_gone(*next)) allocations_.erase(next);
}

void DeviceRegistrations::tidy() {
  for (auto& [device, frees] : frees_) {
    const uint64_t now = device->frees();
    if (std::exchange(frees, now) == now) continue;
    std::erase_if(allocations_,
                  [of = device](const auto& entry) { return entry.first.first == of && is_gone(entry); });
  }
}

void DeviceRegistrations::make_room() {
  if (allocations_.size() <= most) return;
  allocations_.erase(
      std::min_element(allocations_.begin(), allocations_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

size_t DeviceRegistrations::kept() const {
  return static_cast<size_t>(std::count_if(allocations_.begin(), allocations_.end(),
                                           [](const auto& entry) { return entry.second.region != nullptr; }));
}

}  // namespace epccl::transports::verbs
