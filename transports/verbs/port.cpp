#include "transports/verbs/port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace epccl::transports::verbs {
namespace {

constexpr const char* state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "not yet configured by a subnet manager";
    case IBV_PORT_ARMED:
      return "armed, not active";
    default:
      return "not active";
  }
}

bool is_zero(const ibv_gid& gid) {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw), [](uint8_t byte) { return byte == 0; });
}

bool is_link_local(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_ipv4(const ibv_gid& gid) {
  return std::all_of(gid.raw, gid.raw + 10, [](uint8_t byte) { return byte == 0; }) && gid.raw[10] == 0xff &&
         gid.raw[11] == 0xff;
}

/// Higher is better; 0: of no use.
int worth(const ibv_gid_entry& entry, bool ethernet) {
  if (is_zero(entry.gid)) return 0;
  if (!ethernet) return entry.gid_type == IBV_GID_TYPE_IB ? 1 : 0;
  const int version = entry.gid_type == IBV_GID_TYPE_ROCE_V2   ? 10
                      : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? 1
                                                               : 0;
  if (version == 0) return 0;
  return version + (is_ipv4(entry.gid) ? 3 : is_link_local(entry.gid) ? 1 : 2);
}

bool item_matches(std::string_view item, const std::string& device, int port) {
  if (const size_t colon = item.find(':'); colon != std::string_view::npos) {
    if (item.substr(colon + 1) != std::to_string(port)) return false;
    item = item.substr(0, colon);
  }
  if (item.starts_with('=')) return item.substr(1) == device;
  return device.starts_with(item);
}

struct Candidate {
  OpenPort open;
  size_t preference = 0;
};

Result<OpenPort> open_port(const Library& library, ibv_device* device, uint8_t number, int gid_index) {
  OpenPort open{{library.open_device(device), library.close_device}, {}};
  if (open.context == nullptr) return system_error(errno, "it cannot be opened");
  ibv_port_attr attributes{};
  ibv_device_attr about{};
  if (const int failed = library.query_port(open.context.get(), number, &attributes); failed != 0)
    return system_error(failed, "it does not tell its state");
  if (const int failed = library.query_device(open.context.get(), &about); failed != 0)
    return system_error(failed, "its device does not tell its limits");
  if (attributes.state != IBV_PORT_ACTIVE)
    return error(Code::system_error, "{}", state_name(attributes.state));
  Port& port = open.port;
  port.device = library.get_device_name(device);
  port.number = number;
  port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.lid = attributes.lid;
  port.mtu = attributes.active_mtu;
  port.max_message = attributes.max_msg_sz;
  port.max_queue_pairs = about.max_qp;
  port.max_completions = about.max_cqe;
  port.max_receives = about.max_srq_wr;
  EPCCL_ASSIGN(const ibv_gid_entry entry,
               choose_gid(library, *open.context, port.name(), number, attributes, gid_index));
  port.gid = entry.gid;
  port.gid_index = static_cast<uint8_t>(entry.gid_index);
  return open;
}

int ports_of(const Library& library, ibv_device* device) {
  const Owned<ibv_context> context(library.open_device(device), library.close_device);
  ibv_device_attr about{};
  if (context == nullptr || library.query_device(context.get(), &about) != 0) return 1;
  return about.phys_port_cnt;
}

}  // namespace

bool device_selected(const std::string& selection, const std::string& device, int port) {
  std::string_view rest = selection;
  const bool all_but = rest.starts_with('^');
  if (all_but) rest.remove_prefix(1);
  if (rest.empty()) return true;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    if (!item.empty() && item_matches(item, device, port)) return !all_but;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return all_but;
}

Result<ibv_gid_entry> choose_gid(const Library& library, ibv_context& context, const std::string& name,
                                 uint8_t number, const ibv_port_attr& attributes, int forced) {
  const bool ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  const auto query = [&](int index, ibv_gid_entry& entry) {
    return library.query_gid_ex(&context, number, static_cast<uint32_t>(index), &entry, 0, sizeof entry) == 0;
  };
  ibv_gid_entry best{};
  if (forced >= 0) {
    if (forced >= attributes.gid_tbl_len || !query(forced, best) || worth(best, ethernet) == 0)
      return error(
          Code::invalid_argument,
          "{} has no GID at index {} (EPCCL_VERBS_GID_INDEX): its table has {} places, and that one is "
          "empty or of another kind",
          name, forced, attributes.gid_tbl_len);
    return best;
  }
  int best_worth = 0;
  constexpr int enough = 64;  // addresses; behind them a table is empty
  for (int index = 0; index < std::min(attributes.gid_tbl_len, enough); ++index) {
    ibv_gid_entry entry{};
    if (!query(index, entry)) continue;
    if (const int is = worth(entry, ethernet); is > best_worth) {
      best_worth = is;
      best = entry;
    }
  }
  if (best_worth == 0) return error(Code::system_error, "{} has no address (GID)", name);
  return best;
}

Result<std::vector<OpenPort>> open_ports(const Library& library, const PortChoice& choice) {
  int count = 0;
  errno = 0;
  ibv_device** raw = library.get_device_list(&count);
  if (raw == nullptr)
    return system_error(errno == 0 ? ENOSYS : errno, "verbs: this node lists no RDMA devices");
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(raw, library.free_device_list);
  std::vector<Candidate> candidates;
  std::string declined;
  for (int i = 0; i < count; ++i) {
    const std::string device = library.get_device_name(raw[i]);
    for (int number = 1, last = ports_of(library, raw[i]); number <= last; ++number) {
      if (!device_selected(choice.devices, device, number)) continue;
      auto open = open_port(library, raw[i], static_cast<uint8_t>(number), choice.gid_index);
      if (!open.ok() && open.status().code() == Code::invalid_argument) return std::move(open).take_status();
      if (!open.ok()) {
        declined += fmt::format("; {} port {}: {}", device, number, open.status().message());
        continue;
      }
      const auto place = std::find(choice.preferred.begin(), choice.preferred.end(), device);
      candidates.push_back({std::move(open).value(), static_cast<size_t>(place - choice.preferred.begin())});
    }
  }
  if (candidates.empty())
    return error(Code::system_error, "no RDMA port can be used: {} devices{}{}", count,
                 choice.devices.empty() ? "" : fmt::format(", EPCCL_VERBS_DEVICES={}", choice.devices),
                 declined);
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.preference != b.preference) return a.preference < b.preference;
    if (a.open.port.device != b.open.port.device) return a.open.port.device < b.open.port.device;
    return a.open.port.number < b.open.port.number;
  });
  std::vector<OpenPort> ports;
  for (Candidate& candidate : candidates)
    if (ports.size() < static_cast<size_t>(std::clamp(choice.most, 1, max_rails)))
      ports.push_back(std::move(candidate.open));
  return ports;
}

}  // namespace epccl::transports::verbs
