#include "store_connection.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

namespace epccl_torch {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// A store that puts something before the keys of another one.
class Opened : public c10d::PrefixStore {
 public:
  static std::string prefix_of(c10d::PrefixStore& store) { return store.*(&Opened::prefix_); }
};

/// One for each store, as long as there are groups that use it.
class Connections {
 public:
  StorePtr to(const StorePtr& base) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const Connection& one) { return one.base.expired() || one.own.expired(); });
    const pid_t process =
        getpid();  // a child of fork() has its parent's descriptors, which it must not speak on
    for (const Connection& one : known_) {
      if (one.process != process || one.base.lock() != base) continue;
      if (StorePtr own = one.own.lock()) return own;
    }
    StorePtr own = base->clone();
    known_.push_back(
        {c10::weak_intrusive_ptr<c10d::Store>(base), c10::weak_intrusive_ptr<c10d::Store>(own), process});
    return own;
  }

 private:
  struct Connection {
    c10::weak_intrusive_ptr<c10d::Store> base, own;
    pid_t process;
  };
  std::mutex mutex_;
  std::vector<Connection> known_;
};

}  // namespace

StorePtr over_own_connection(const StorePtr& store) {
  // Leaked: groups may be made until the process has ended.
  static Connections& connections = *new Connections;  // NOLINT
  std::vector<std::string> prefixes;
  StorePtr base = store;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(base.get())) {
    prefixes.push_back(Opened::prefix_of(*prefixed));
    base = prefixed->getUnderlyingStore();
  }
  StorePtr own;
  try {
    own = connections.to(base);
  } catch (const std::exception&) {
    return store;  // a store of a kind that cannot
  }
  for (auto prefix = prefixes.rbegin(); prefix != prefixes.rend(); ++prefix)
    own = c10::make_intrusive<c10d::PrefixStore>(std::move(*prefix), std::move(own));
  return own;
}

}  // namespace epccl_torch
