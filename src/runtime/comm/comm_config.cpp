#include "runtime/comm/comm_config.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "base/settings.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {
namespace {

using algorithms::Algorithm;

static_assert(transports::node_max_ranks == 125, "EPCCL_CARRIERS may be as many (base/settings_table.cpp)");

Result<std::optional<Algorithm>> parse_algorithm(const std::string& text) {
  if (text.empty() || text == "auto") return std::optional<Algorithm>{};
  std::string known;
  for (const Algorithm algorithm : algorithms::all_algorithms) {
    if (text == to_string(algorithm)) return std::optional(algorithm);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_string(algorithm));
  }
  return error(Code::invalid_argument, "algorithm \"{}\" is unknown: {} or auto", text, known);
}

Result<NetworkKind> parse_network(const std::string& text) {
  for (const NetworkKind kind : {NetworkKind::automatic, NetworkKind::measured, NetworkKind::tcp,
                                 NetworkKind::ucx, NetworkKind::verbs, NetworkKind::none})
    if (text == to_string(kind)) return kind;
  return error(Code::invalid_argument, "network \"{}\" is unknown: auto, measured, tcp, ucx, verbs or none",
               text);
}

Result<Aggregate> parse_aggregate(const std::string& text) {
  if (text == "auto") return Aggregate::automatic;
  if (text == "0") return Aggregate::never;
  if (text == "1") return Aggregate::always;
  return error(Code::invalid_argument, "EPCCL_GROUP_AGGREGATE=\"{}\" is unknown: auto, 0 or 1", text);
}

// The table has checked the text, here and below.
std::optional<algorithms::Variant> variant_of(const std::string& text) {
  for (const algorithms::Variant variant : algorithms::variants)
    if (text == to_string(variant)) return variant;
  return {};
}

StagingUse staging_use(const std::string& text) {
  if (text == "auto") return StagingUse::automatic;
  return text == "always" ? StagingUse::always : StagingUse::never;
}

Result<std::optional<double>> microseconds(const char* name) {
  const std::string text = settings::get(name);
  if (text.empty() || text == "auto") return std::optional<double>{};
  EPCCL_ASSIGN(const int64_t value, settings::get_integer(name));
  if (value < 0) return error(Code::invalid_argument, "{}={} is negative", name, value);
  return std::optional(1e-6 * static_cast<double>(value));
}

// What the host has to notice between two steps costs tens of microseconds: chunks should take longer than that.
constexpr uint64_t engine_chunk = 1 << 20;
static_assert(algorithms::Parameters{}.chunk_bytes == 128 << 10 && engine_chunk == 1 << 20,
              "EPCCL_CHUNK_SIZE=auto is said to be that (base/settings_table.cpp)");

Status read_parameters(CommConfig& config) {
  config.engine_chunk_bytes = engine_chunk;
  if (settings::get("EPCCL_CHUNK_SIZE") != "auto") {
    EPCCL_ASSIGN(config.parameters.chunk_bytes, settings::get_bytes("EPCCL_CHUNK_SIZE"));
    config.engine_chunk_bytes = config.parameters.chunk_bytes;
  }
  EPCCL_ASSIGN(config.parameters.scratch_bytes, settings::get_bytes("EPCCL_SCRATCH_SIZE"));
  EPCCL_ASSIGN(config.parameters.eager_limit, settings::get_bytes("EPCCL_EAGER_LIMIT"));
  if (settings::get("EPCCL_STREAMING_SIZE") != "auto") {
    EPCCL_ASSIGN(config.copies.streaming_bytes, settings::get_bytes("EPCCL_STREAMING_SIZE"));
    config.copies.keeps_outputs = false;
  }
  EPCCL_ASSIGN(config.stage_bytes, settings::get_bytes("EPCCL_STAGE_SIZE"));
  config.engines.stage_bytes = config.stage_bytes;
  EPCCL_ASSIGN(const int64_t carriers, settings::get_integer("EPCCL_CARRIERS"));
  config.carriers = carriers == 0 ? -1 : static_cast<int>(carriers);
  return {};
}

Result<GpuDirect> gpu_direct() {
  const std::string wish = settings::get("EPCCL_GPU_DIRECT");
  if (wish == "auto") return GpuDirect::automatic;
  if (wish == "dmabuf") return GpuDirect::dmabuf;
  if (wish == "peermem") return GpuDirect::peermem;
  if (wish == "0") return GpuDirect::never;
  return error(Code::invalid_argument, "EPCCL_GPU_DIRECT={} is none of auto, dmabuf, peermem, 0", wish);
}

// EPCCL_VERBS_DEVICES with the number of this virtual node put in.
std::string device_selection() {
  std::string selection = settings::get("EPCCL_VERBS_DEVICES");
  const std::string host = settings::get("EPCCL_HOSTID");
  const std::string number = host.substr(host.find_last_not_of("0123456789") + 1);
  for (size_t at = selection.find("%n"); at != std::string::npos; at = selection.find("%n", at))
    selection.replace(at, 2, number);
  return selection;
}

Result<std::optional<int>> integer_unless_auto(const char* name) {
  if (settings::get(name) == "auto") return std::optional<int>{};
  EPCCL_ASSIGN(const int64_t value, settings::get_integer(name));
  return std::optional(static_cast<int>(value));
}

// Then a thread would be in the driver until other ranks post what its kernel waits for, and might keep out who posts that.
bool launches_block() {
  const char* const set = std::getenv("CUDA_LAUNCH_BLOCKING");
  return set != nullptr && std::strcmp(set, "") != 0 && std::strcmp(set, "0") != 0;
}

// Of the settings that options of a call go before, and of two words for one thing, what came out counts.
std::string agreement_of(const CommConfig& config) {
  const std::map<std::string_view, std::string_view> found = {
      {"EPCCL_ALGO", config.algorithm ? algorithms::to_string(*config.algorithm) : "auto"},
      {"EPCCL_NET", to_string(config.network)},
      {"EPCCL_COPY_ENGINE", to_string(config.engines.use)},
      {"EPCCL_CMA", config.allow_direct ? "auto" : "0"}};
  constexpr std::string_view prefix = "EPCCL_";
  std::string text;
  for (const settings::Entry& entry : settings::table()) {
    if (entry.scope != settings::Scope::all_ranks) continue;
    const auto it = found.find(entry.name);
    text +=
        fmt::format("{}{}={}", text.empty() ? "" : " ", std::string_view(entry.name).substr(prefix.size()),
                    it != found.end() ? std::string(it->second) : settings::get_plain(entry.name));
  }
  return text;
}

}  // namespace

const char* to_string(NetworkKind kind) {
  switch (kind) {
    case NetworkKind::automatic:
      return "auto";
    case NetworkKind::measured:
      return "measured";
    case NetworkKind::tcp:
      return "tcp";
    case NetworkKind::ucx:
      return "ucx";
    case NetworkKind::verbs:
      return "verbs";
    case NetworkKind::none:
      return "none";
  }
  return "?";
}

Result<NetworkSettings> read_network_settings() {
  NetworkSettings read;
  EPCCL_ASSIGN(read.gpu_direct, gpu_direct());
  read.verbs_devices = device_selection();
  EPCCL_ASSIGN(read.gid_index, integer_unless_auto("EPCCL_VERBS_GID_INDEX"));
  EPCCL_ASSIGN(read.rails, integer_unless_auto("EPCCL_RAILS"));
  EPCCL_ASSIGN(read.rail_failover, settings::get_bool("EPCCL_RAIL_FAILOVER"));
  EPCCL_ASSIGN(read.eager_limit, settings::get_bytes("EPCCL_VERBS_EAGER_LIMIT"));
  EPCCL_ASSIGN(read.silence, settings::get_seconds("EPCCL_VERBS_TIMEOUT"));
  return read;
}

Result<CommConfig> read_comm_config(const CommOptions& options) {
  EPCCL_TRY(settings::check());
  CommConfig config;
  config.name = options.name;
  config.gpu = options.gpu;
  EPCCL_ASSIGN(config.algorithm, parse_algorithm(options.algorithm.value_or(settings::get("EPCCL_ALGO"))));
  config.variant = variant_of(settings::get("EPCCL_VARIANT"));
  EPCCL_TRY(read_parameters(config));
  config.allow_direct = settings::get("EPCCL_CMA") != "0";
  config.copies.staging = staging_use(settings::get("EPCCL_STAGING"));
  if (!settings::get("EPCCL_LINK_RATE").empty()) {
    EPCCL_ASSIGN(const double bits_per_second, settings::get_rate("EPCCL_LINK_RATE"));
    config.link_rate = bits_per_second / 8;
  }
  EPCCL_ASSIGN(config.aggregate, parse_aggregate(settings::get("EPCCL_GROUP_AGGREGATE")));
  EPCCL_ASSIGN(config.network, parse_network(options.network.value_or(settings::get("EPCCL_NET"))));
  EPCCL_ASSIGN(config.network_settings, read_network_settings());
  EPCCL_ASSIGN(config.engines.use, parse_engine_use(settings::get("EPCCL_COPY_ENGINE")));
  if (options.engines) config.engines.use = *options.engines;
  EPCCL_ASSIGN(const int64_t blocks, settings::get_integer("EPCCL_MAX_CTAS"));
  config.engines.max_blocks = options.max_blocks > 0 ? options.max_blocks : static_cast<int>(blocks);
  EPCCL_ASSIGN(const auto spin, microseconds("EPCCL_SPIN"));
  EPCCL_ASSIGN(const auto yield, microseconds("EPCCL_YIELD"));
  config.spin_is_set = spin.has_value();
  config.wait.spin_seconds = spin.value_or(50e-6);
  config.wait.yield_seconds = yield.value_or(config.wait.yield_seconds);
  EPCCL_ASSIGN(config.wait.timeout_seconds, settings::get_seconds("EPCCL_TIMEOUT"));
  EPCCL_ASSIGN(config.wait.most_in_driver, settings::get_seconds("EPCCL_CUDA_STUCK"));
  EPCCL_ASSIGN(config.wait.first_warning, settings::get_seconds("EPCCL_WAIT_WARNING"));
  if (options.timeout_seconds > 0) config.wait.timeout_seconds = options.timeout_seconds;
  EPCCL_ASSIGN(const int64_t first_calls, settings::get_integer("EPCCL_CUDA_FIRST_CALLS"));
  if (options.first_gpu_calls) config.first_gpu_calls = static_cast<uint64_t>(first_calls);
  config.engines.near_signals = settings::get("EPCCL_CUDA_SIGNALS") == "auto" && !launches_block();
  EPCCL_ASSIGN(config.queues_behind_held, settings::get_bool("EPCCL_CUDA_AHEAD"));
  EPCCL_ASSIGN(const int64_t compare_every, settings::get_integer("EPCCL_STRAGGLERS"));
  config.compare_every = static_cast<uint64_t>(compare_every);
  config.agreement = agreement_of(config);
  return config;
}

// The host notices late that a message is through: others are under way meanwhile.
algorithms::Parameters CommConfig::engine_parameters() const {
  algorithms::Parameters made = parameters;
  made.chunk_bytes = engine_chunk_bytes;
  made.send_window = std::max(made.send_window, 4 * engine_chunk_bytes);
  return made;
}

}  // namespace epccl::runtime
