#include "api/comm/comm_options.hpp"

#include <cmath>

#include "api/handles/sized_struct.hpp"

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
  const epcclConfig_t defaults = EPCCL_CONFIG_INITIALIZER;
  EPCCL_ASSIGN(const epcclConfig_t config,
               read_sized("config", *given, defaults, "EPCCL_CONFIG_INITIALIZER"));
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
