#include "topology/host_id.hpp"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <string_view>

#include "base/fnv1a.hpp"
#include "base/settings.hpp"

namespace epccl::topology {
namespace {

/// A field and its end: "ab" + "c" must not hash as "a" + "bc".
uint64_t add_field(uint64_t hash, std::string_view field) {
  return fnv1a64(std::string_view("\0", 1), fnv1a64(field, hash));
}

std::string read_link(const std::string& path) {
  char target[128];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
}

}  // namespace

std::string HostId::label() const {
  return overridden.empty() ? host : fmt::format("{} (EPCCL_HOSTID={})", host, overridden);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name) == 0 ? name : "";
}

Result<HostIdentity> read_host_identity() {
  HostIdentity identity;
  errno = 0;
  identity.host = host_name();
  if (identity.host.empty() && errno == 0) return error(Code::system_error, "this machine's name is empty");
  if (identity.host.empty()) return system_error(errno, "gethostname");
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  std::getline(boot_id, identity.boot_id);
  for (const char* name : {"pid", "net", "ipc"})
    identity.namespaces.emplace_back(name, read_link(fmt::format("/proc/self/ns/{}", name)));
  return identity;
}

HostId make_host_id(const HostIdentity& identity, const std::optional<std::string>& override_text) {
  HostId id;
  id.host = identity.host;
  // Containers of one machine have names of their own.
  id.kernel = fnv1a64(identity.boot_id.empty() ? identity.host : identity.boot_id);
  if (override_text && !override_text->empty()) {
    id.overridden = *override_text;
    id.hash = add_field(add_field(fnv1a64(""), "override"), *override_text);
    return id;
  }
  id.hash = add_field(add_field(fnv1a64(""), identity.host), identity.boot_id);
  for (const auto& [name, inode] : identity.namespaces) id.hash = add_field(add_field(id.hash, name), inode);
  return id;
}

Result<HostId> this_host_id() {
  EPCCL_ASSIGN(const HostIdentity identity, read_host_identity());
  return make_host_id(identity, settings::get_explicit("EPCCL_HOSTID"));
}

}  // namespace epccl::topology
