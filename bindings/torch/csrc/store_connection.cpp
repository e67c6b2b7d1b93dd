#include "store_connection.hpp"

#include <unistd.h>

#include <iterator>
#include <memory>
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

struct Connection {
  StorePtr base, own;
  pid_t process;  // a child of fork() has its parent's descriptors, which it must not speak on
};
using ConnectionPtr = std::shared_ptr<const Connection>;

/// Keeps the connection, and with it the store that it is known by. (A weak pointer of c10 would keep either from its end: its object's
/// destructor runs when the last of these is gone, too.)
class OverConnection : public c10d::PrefixStore {
 public:
  OverConnection(std::string prefix, ConnectionPtr connection)
      : PrefixStore(std::move(prefix), connection->own), connection_(std::move(connection)) {}

 private:
  const ConnectionPtr connection_;
};

/// One for each store, as long as there are groups that use it.
class Connections {
 public:
  ConnectionPtr to(const StorePtr& base) {
    if (ConnectionPtr known = find(base, nullptr)) return known;
    return find(base, std::make_shared<Connection>(Connection{base, base->clone(), getpid()}));
  }

 private:
  /// The one that is there, else `made`, which is known from then on.
  ConnectionPtr find(const StorePtr& base, ConnectionPtr made) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const auto& each) { return each.expired(); });
    for (const auto& each : known_)
      if (ConnectionPtr one = each.lock(); one && one->base == base && one->process == getpid()) return one;
    if (made) known_.push_back(made);
    return made;
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<const Connection>> known_;
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
  // There is one of the group's room at least.
  if (prefixes.empty()) return store;
  ConnectionPtr connection;
  try {
    connection = connections.to(base);
  } catch (const std::exception&) {
    return store;  // a store of a kind that cannot
  }
  StorePtr own = c10::make_intrusive<OverConnection>(std::move(prefixes.back()), std::move(connection));
  for (auto prefix = std::next(prefixes.rbegin()); prefix != prefixes.rend(); ++prefix)
    own = c10::make_intrusive<c10d::PrefixStore>(std::move(*prefix), std::move(own));
  return own;
}

}  // namespace epccl_torch
