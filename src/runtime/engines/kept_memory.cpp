#include "runtime/engines/kept_memory.hpp"

#include <map>
#include <mutex>

#include "base/never_destroyed.hpp"

namespace epccl::runtime {
namespace {

struct LentByAddress {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<const void>> by_address;
};
LentByAddress& all_lent() {
  static NeverDestroyed<LentByAddress> instance;
  return *instance;
}

}  // namespace

void KeptMemory::add(const void* address, const std::shared_ptr<const void>& memory) {
  const std::lock_guard lock(all_lent().mutex);
  std::erase_if(all_lent().by_address, [](const auto& known) { return known.second.expired(); });
  all_lent().by_address[address] = memory;
}

std::shared_ptr<const void> KeptMemory::at(const void* address) {
  const std::lock_guard lock(all_lent().mutex);
  const auto known = all_lent().by_address.find(address);
  return known == all_lent().by_address.end() ? nullptr : known->second.lock();
}

}  // namespace epccl::runtime
