#include "topology/caches.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/settings.hpp"
#include "topology/first_line.hpp"
#include "topology/parse_number.hpp"

namespace epccl::topology {
namespace {

namespace fs = std::filesystem;

struct Cache {
  int64_t level = 0;
  uint64_t bytes = 0;
  CpuList cpus;
};

std::optional<Cache> cache_at(const fs::path& folder) {
  const auto level = parse_integer(first_line(folder / "level"), 0, 16);
  const auto bytes = settings::parse_bytes(first_line(folder / "size"));
  auto cpus = parse_cpu_mask(first_line(folder / "shared_cpu_map"));
  if (!level || !bytes.ok() || !cpus.ok() || cpus->empty()) return std::nullopt;
  return Cache{*level, *bytes, std::move(cpus).value()};
}

std::optional<Cache> last_level_cache_of(int cpu, const fs::path& sysfs) {
  std::optional<Cache> last;
  for (int index = 0;; ++index) {
    const fs::path folder = sysfs / fmt::format("cpu{}/cache/index{}", cpu, index);
    if (std::error_code gone; !fs::exists(folder, gone)) return last;
    auto cache = cache_at(folder);
    if (cache && (!last || cache->level > last->level)) last = std::move(cache);
  }
}

}  // namespace

LastLevelCaches last_level_caches(const CpuList& cpus, const std::string& sysfs) {
  LastLevelCaches found;
  std::set<int> seen;
  for (const int cpu : cpus) {
    if (seen.contains(cpu)) continue;
    const std::optional<Cache> cache = last_level_cache_of(cpu, sysfs);
    if (!cache) continue;
    const auto is_own = [&](int other) { return std::ranges::binary_search(cpus, other); };
    const auto own = static_cast<uint64_t>(std::ranges::count_if(cache->cpus, is_own));
    const uint64_t part = cache->bytes / cache->cpus.size() * own;
    found.total += part;
    found.largest = std::max(found.largest, part);
    seen.insert(cache->cpus.begin(), cache->cpus.end());
  }
  return found;
}

}  // namespace epccl::topology
