// Reading ncclConfig_t and ncclSimInfo_t of programs that were built with an older, the same or a newer nccl.h.
#pragma once

#include <optional>
#include <string>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// `given` as this version of NCCL reads it: as many bytes as both know, fields newer than `given->version` undefined, every
/// value in its range. `given` NULL: all undefined.
Result<ncclConfig_t> read_config(const ncclConfig_t* given);

/// A config and the strings it points to, for calls that are made later. NULL stays NULL, which stands for a parent's.
class KeptConfig {
 public:
  KeptConfig() = default;
  static Result<KeptConfig> read(const ncclConfig_t* given);

  /// What of it EPCCL acts on; the rest are hints for NVIDIA's hardware. Points into this object. Empty: NULL.
  std::optional<epcclConfig_t> native() const;
  /// The same, of a communicator that has no parent.
  epcclConfig_t native_of_new() const;

  /// Calls `use(ncclConfig_t*)`.
  template <typename Use>
  auto with(Use use) const {
    ncclConfig_t copy = config();
    return use(given_ ? &copy : nullptr);
  }

  /// `blocking`, which is 1 where it is not set; `without_config` where there was no config.
  bool blocking_or(bool without_config) const;

 private:
  ncclConfig_t config() const;

  std::optional<ncclConfig_t> given_;
  std::string net_name_, comm_name_;
};

/// Seconds that a rank of an NCCL program waits for a silent one; 0: as one of any program.
double timeout_of_programs();

/// Checks size and magic. Error: not made with NCCL_SIM_INFO_INITIALIZER.
Status check_sim_info(const ncclSimInfo_t* given);

}  // namespace epccl::nccl
