// Memory that devices may read and write: registrations, kept as long as they are of use.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/verbs/rail.hpp"

namespace epccl::transports::verbs {

/// A range of memory, registered with every rail.
class Region {
 public:
  /// All rails or none: what was registered when one refuses is given up again.
  static Result<std::unique_ptr<Region>> create(const std::vector<std::unique_ptr<Rail>>& rails, void* begin,
                                                size_t bytes, bool written);

  uint32_t local_key(size_t rail) const { return regions_[rail]->lkey; }
  uint32_t remote_key(size_t rail) const { return regions_[rail]->rkey; }

 private:
  std::vector<Owned<ibv_mr>> regions_;
};

}  // namespace epccl::transports::verbs
