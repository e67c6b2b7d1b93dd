#include "transports/verbs/memory.hpp"

#include <cerrno>

namespace epccl::transports::verbs {

Result<std::unique_ptr<Region>> Region::create(const std::vector<std::unique_ptr<Rail>>& rails, void* begin,
                                               size_t bytes, bool written) {
  auto region = std::make_unique<Region>();
  const int access = written ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
  for (const auto& rail : rails) {
    ibv_mr* registered = rail->library().reg_mr(rail->domain(), begin, bytes, access);
    if (registered == nullptr) return registration_error(errno, rail->port().name(), bytes);
    region->regions_.emplace_back(registered, rail->library().dereg_mr);
  }
  return region;
}

}  // namespace epccl::transports::verbs
