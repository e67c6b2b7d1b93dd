#include "runtime/bootstrap/member.hpp"

#include "base/log.hpp"

namespace epccl::runtime {

std::string describe(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host, member.pid);
}

}  // namespace epccl::runtime
