#include "transports/ucx/ucx_config.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace epccl::transports::ucx {
namespace {

bool user_has_set(const std::string& name) {
  return std::getenv(("UCX_" + name).c_str()) != nullptr;
}

std::vector<std::string_view> comma_separated(std::string_view text) {
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    items.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return items;
}

/// Any device of a network faster than sockets. Listing the devices opens none of them.
bool ucx_sees_rdma_devices(const Library& ucx) {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (ucx.query_components(&components, &count) != UCS_OK) return false;
  bool found = false;
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (ucx.component_query(components[i], &attributes) != UCS_OK) continue;
    const std::string_view name = attributes.name;
    if ((name == "ib" || name == "ugni") && attributes.md_resource_count > 0) found = true;
  }
  ucx.release_component_list(components);
  return found;
}

/// "rc_mlx5", "\\ud_verbs", "ib" and the like in a UCX_TLS list.
bool names_rdma(std::string_view transport) {
  if (transport.starts_with('\\')) transport.remove_prefix(1);
  constexpr std::array<std::string_view, 6> prefixes{"all", "ib", "rc", "ud", "dc", "ugni"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](auto prefix) { return transport.starts_with(prefix); });
}

/// Of the list behind the ^ in UCX_TLS: ib stands for all that an HCA has, else each has to be there.
bool leaves_rdma_out(const std::vector<std::string_view>& items) {
  const auto has = [&](std::string_view transport) {
    return std::ranges::find(items, transport) != items.end();
  };
  return has("ib") || (has("rc") && has("ud") && has("dc"));
}

bool user_excludes_rdma() {
  if (const char* transports = std::getenv("UCX_TLS"); transports != nullptr) {
    const bool is_inverted = transports[0] == '^';
    const auto items = comma_separated(transports + (is_inverted ? 1 : 0));
    if (is_inverted ? leaves_rdma_out(items) : std::none_of(items.begin(), items.end(), names_rdma))
      return true;
  }
  if (const char* devices = std::getenv("UCX_NET_DEVICES");
      devices != nullptr && std::strcmp(devices, "all") != 0) {
    // RDMA devices are named with their port, mlx5_0:1; sockets' are not.
    return std::strchr(devices, ':') == nullptr;
  }
  return false;
}

bool handled_by_ucx(int signal_number) {
  struct sigaction current {};
  if (sigaction(signal_number, nullptr, &current) != 0) return false;
  void* handler = (current.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(current.sa_sigaction)
                                                       : reinterpret_cast<void*>(current.sa_handler);
  Dl_info where{};
  return handler != nullptr && dladdr(handler, &where) != 0 && where.dli_fname != nullptr &&
         std::strstr(where.dli_fname, "libucs") != nullptr;
}

}  // namespace

std::vector<Setting> preferred_settings(bool tcp_only) {
  std::vector<Setting> settings{
      // Ranks of one node do not meet here, so shared-memory transports would only cost memory and polling.
      // Where one machine stands for several nodes, its loopback is their network.
      {"TLS", "^shm"},
      // Errors come back as values, with names; nothing is printed unless asked for.
      {"LOG_LEVEL", "fatal"},
      {"WARN_UNUSED_ENV_VARS", "n"},
      {"WARN_INVALID_CONFIG", "n"},
      // Or a call stands in connect() for as long as the kernel tries a peer that does not answer, whatever the timeout is.
      {"TCP_CONN_NB", "y"},
  };
  if (tcp_only) {
    // On a queued TCP link the handshake of a rendezvous waits behind bulk data.
    settings.push_back({"RNDV_THRESH", "inf"});
    // When a peer dies under a TCP send that UCX 1.13 does not copy, UCX completes it twice and aborts.
    settings.push_back({"ZCOPY_THRESH", "inf"});
    // Up to 33 KiB leave in one system call; larger send segments cost more CPU in streams. The receive segment keeps
    // UCX's own ratio of 8 to it: with 65k, streams of 128 KiB messages between many ranks came to a stand, the
    // receiver no longer reading from its socket.
    if (!user_has_set("TCP_TX_SEG_SIZE") && !user_has_set("TCP_RX_SEG_SIZE")) {
      settings.push_back({"TCP_TX_SEG_SIZE", "33k"});
      settings.push_back({"TCP_RX_SEG_SIZE", "264k"});
    }
  }
  std::erase_if(settings, [](const Setting& setting) { return user_has_set(setting.name); });
  // UCX 1.13 knows the settings of a transport by their bare names, later ones with the transport's prefix.
  for (size_t i = 0, count = settings.size(); i < count; ++i) {
    const std::string_view prefix = "TCP_";
    if (settings[i].name.starts_with(prefix)) {
      settings.push_back({settings[i].name.substr(prefix.size()), settings[i].value});
    }
  }
  return settings;
}

bool tcp_is_the_only_network(const Library& ucx) {
  return user_excludes_rdma() || !ucx_sees_rdma_devices(ucx);
}

void restore_signal_handlers(const Library& ucx) {
  if (!user_has_set("DEBUG_SIGNO") && handled_by_ucx(SIGHUP)) ucx.debug_disable_signal(SIGHUP);
  if (user_has_set("HANDLE_ERRORS") || user_has_set("ERROR_SIGNALS")) return;
  for (const int signal_number : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    if (handled_by_ucx(signal_number)) ucx.debug_disable_signal(signal_number);
  }
}

}  // namespace epccl::transports::ucx
