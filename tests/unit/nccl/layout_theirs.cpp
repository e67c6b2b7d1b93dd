#include <nccl.h>
#include <nccl_device.h>

#include <cstddef>

#include "layout.hpp"

namespace {
constexpr ncclConfig_t initial_config = NCCL_CONFIG_INITIALIZER;
constexpr ncclSimInfo_t initial_sim_info = NCCL_SIM_INFO_INITIALIZER;
constexpr long long UNDEFINED_INT = NCCL_CONFIG_UNDEF_INT, CONFIG_MAGIC = initial_config.magic,
                    SIM_INFO_MAGIC = initial_sim_info.magic, ABI_VERSION = NCCL_VERSION_CODE;
}  // namespace

Layout their_layout() {
  return {
#include "layout.inc"
  };
}
