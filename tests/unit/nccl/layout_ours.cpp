#include "layout.hpp"
#include "nccl/abi.hpp"

namespace {
constexpr long long UNDEFINED_INT = nccl_undefined_int, CONFIG_MAGIC = nccl_config_magic,
                    SIM_INFO_MAGIC = nccl_sim_info_magic, ABI_VERSION = nccl_version;
}

Layout our_layout() {
  return {
#include "layout.inc"
  };
}
