#include "config.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/settings.hpp"

namespace epccl::nccl {
namespace {

struct Field {
  const char* name;
  int ncclConfig_t::*at;
  unsigned since;  // as NCCL_VERSION(): programs built with an older nccl.h did not mean to set it
  int least, most;
};

constexpr unsigned always = 0;
constexpr int any = INT_MAX;

// NCCL gates exactly these fields by version; `splitShare` and `commName` it takes wherever the size has room for them.
constexpr Field fields[] = {
    {"blocking", &ncclConfig_t::blocking, 21400, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700, 0, any},
    {"minCTAs", &ncclConfig_t::minCTAs, 21700, 1, any},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 21700, 1, any},
    {"splitShare", &ncclConfig_t::splitShare, always, 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, 22500, -any, any},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 22700, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, 0, 2},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 22700, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700, 1, any},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800, 1, any},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800, 0, 1},
};
constexpr unsigned net_name_since = 21700;

ncclConfig_t undefined_config() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = nccl_config_magic;
  config.version = nccl_version;
  for (const Field& field : fields) config.*field.at = nccl_undefined_int;
  return config;
}

Status check_range(const Field& field, int value) {
  if (value == nccl_undefined_int || (value >= field.least && value <= field.most)) return {};
  if (field.most == any)
    return error(Code::invalid_argument, "config.{} is {}: at least {}", field.name, value, field.least);
  return error(Code::invalid_argument, "config.{} is {}: {}..{}", field.name, value, field.least, field.most);
}

}  // namespace

Result<ncclConfig_t> read_config(const ncclConfig_t* given) {
  ncclConfig_t config = undefined_config();
  if (given == nullptr) return config;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < offsetof(ncclConfig_t, blocking))
    return error(Code::invalid_argument, "config.size is {}: use NCCL_CONFIG_INITIALIZER", size);
  std::memcpy(static_cast<void*>(&config), given, std::min(size, sizeof config));
  if (config.magic != nccl_config_magic)
    return error(Code::invalid_argument, "config.magic is {:#x}, not {:#x}: use NCCL_CONFIG_INITIALIZER",
                 config.magic, nccl_config_magic);
  for (const Field& field : fields) {
    if (config.version < field.since) config.*field.at = nccl_undefined_int;
    EPCCL_TRY(check_range(field, config.*field.at));
  }
  if (config.version < net_name_since) config.netName = nullptr;
  if (config.minCTAs != nccl_undefined_int && config.maxCTAs != nccl_undefined_int &&
      config.minCTAs > config.maxCTAs)
    return error(Code::invalid_argument, "config.minCTAs is {}, config.maxCTAs is {}", config.minCTAs,
                 config.maxCTAs);
  config.size = sizeof config;
  config.version = nccl_version;
  return config;
}

Result<KeptConfig> KeptConfig::read(const ncclConfig_t* given) {
  KeptConfig kept;
  if (given == nullptr) return kept;
  EPCCL_ASSIGN(kept.given_, read_config(given));
  if (kept.given_->netName != nullptr) kept.net_name_ = kept.given_->netName;
  if (kept.given_->commName != nullptr) kept.comm_name_ = kept.given_->commName;
  return kept;
}

ncclConfig_t KeptConfig::config() const {
  ncclConfig_t config = given_ ? *given_ : undefined_config();
  config.netName = net_name_.empty() ? nullptr : net_name_.c_str();
  config.commName = comm_name_.empty() ? nullptr : comm_name_.c_str();
  return config;
}

// `netName` names one of NCCL's network modules: nothing that EPCCL could take.
std::optional<epcclConfig_t> KeptConfig::native() const {
  if (!given_) return std::nullopt;
  epcclConfig_t native = EPCCL_CONFIG_INITIALIZER;
  native.timeout = timeout_of_programs();
  native.commName = comm_name_.empty() ? nullptr : comm_name_.c_str();
  native.blocking = given_->blocking;
  // Also of nonblocking ones: to return at once is worth less than what a driver may keep waiting.
  native.firstCalls = 1;
  native.splitShare = given_->splitShare;
  native.shrinkShare = given_->shrinkShare;
  native.maxCTAs = given_->maxCTAs;
  if (given_->CTAPolicy == EPCCL_CTA_POLICY_ZERO) native.CTAPolicy = EPCCL_CTA_POLICY_ZERO;
  return native;
}

epcclConfig_t KeptConfig::native_of_new() const {
  epcclConfig_t plain = EPCCL_CONFIG_INITIALIZER;
  plain.timeout = timeout_of_programs();
  return native().value_or(plain);
}

bool KeptConfig::blocking_or(bool without_config) const {
  if (!given_) return without_config;
  return given_->blocking == nccl_undefined_int || given_->blocking != 0;
}

// A value that is no number of seconds is refused when a communicator is made.
double timeout_of_programs() {
  const bool is_set = settings::get_explicit("EPCCL_NCCL_TIMEOUT").has_value();
  if (!is_set && settings::get_explicit("EPCCL_TIMEOUT")) return 0;
  const Result<double> seconds = settings::get_seconds("EPCCL_NCCL_TIMEOUT");
  return seconds.ok() ? *seconds : 0;
}

Status check_sim_info(const ncclSimInfo_t* given) {
  if (given == nullptr) return {};
  ncclSimInfo_t info{};
  std::memcpy(&info.size, given, sizeof info.size);
  if (info.size < offsetof(ncclSimInfo_t, estimatedTime))
    return error(Code::invalid_argument, "simInfo.size is {}: use NCCL_SIM_INFO_INITIALIZER", info.size);
  std::memcpy(static_cast<void*>(&info), given, std::min(info.size, sizeof info));
  if (info.magic == nccl_sim_info_magic) return {};
  return error(Code::invalid_argument, "simInfo.magic is {:#x}, not {:#x}: use NCCL_SIM_INFO_INITIALIZER",
               info.magic, nccl_sim_info_magic);
}

}  // namespace epccl::nccl
