#include "api/comm/comm_options.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace epccl::api {
namespace {

Result<bool> read_flag(const char* name, int value, bool otherwise) {
  if (value == EPCCL_CONFIG_UNDEF_INT) return otherwise;
  if (value == 0 || value == 1) return value == 1;
  return error(Code::invalid_argument, "config.{} is {}: 0, 1 or EPCCL_CONFIG_UNDEF_INT", name, value);
}

Status read_engines(const epcclConfig_t& config, runtime::CommOptions& options) {
  constexpr int undefined = EPCCL_CONFIG_UNDEF_INT;
  if (config.maxCTAs != undefined && config.maxCTAs < 1)
    return error(Code::invalid_argument, "config.maxCTAs is {}: at least 1, or EPCCL_CONFIG_UNDEF_INT",
                 config.maxCTAs);
  if (config.maxCTAs != undefined) options.max_blocks = config.maxCTAs;
  if (config.CTAPolicy != undefined &&
      (config.CTAPolicy < EPCCL_CTA_POLICY_DEFAULT || config.CTAPolicy > EPCCL_CTA_POLICY_ZERO))
    return error(Code::invalid_argument, "config.CTAPolicy is {}: see EPCCL_CTA_POLICY_DEFAULT",
                 config.CTAPolicy);
  if (config.CTAPolicy == EPCCL_CTA_POLICY_ZERO) options.engines = runtime::EngineUse::always;
  if (config.copyEngine == nullptr) return {};
  EPCCL_ASSIGN(options.engines, runtime::parse_engine_use(config.copyEngine));
  return {};
}

}  // namespace

Result<runtime::CommOptions> read_config(const epcclConfig_t* given) {
  runtime::CommOptions options;
  if (given == nullptr) return options;
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < offsetof(epcclConfig_t, algorithm) || size > 64 * sizeof(epcclConfig_t))
    return error(Code::invalid_argument, "config.size is {}: use EPCCL_CONFIG_INITIALIZER", size);
  std::memcpy(&config, given, std::min(size, sizeof config));
  if (config.magic != EPCCL_CONFIG_MAGIC)
    return error(Code::invalid_argument, "config.magic is {:#x}: use EPCCL_CONFIG_INITIALIZER", config.magic);
  if (config.algorithm != nullptr) options.algorithm = config.algorithm;
  if (config.commName != nullptr) options.name = config.commName;
  if (config.netName != nullptr) options.network = config.netName;
  if (std::isnan(config.timeout)) return error(Code::invalid_argument, "config.timeout is not a number");
  options.timeout_seconds = config.timeout;
  EPCCL_ASSIGN(options.blocking, read_flag("blocking", config.blocking, true));
  EPCCL_ASSIGN(options.first_gpu_calls, read_flag("firstCalls", config.firstCalls, options.blocking));
  EPCCL_TRY(read_engines(config, options));
  // Hints that host memory makes nothing of.
  EPCCL_TRY(read_flag("splitShare", config.splitShare, false).status());
  EPCCL_TRY(read_flag("shrinkShare", config.shrinkShare, false).status());
  return options;
}

}  // namespace epccl::api
