#include "base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace epccl {

DescriptorLimit descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  static_assert(RLIM_INFINITY == UINT64_MAX);
  return {limit.rlim_cur, limit.rlim_max};
}

bool raise_descriptor_limit() {
  const DescriptorLimit limit = descriptor_limit();
  if (limit.now >= limit.highest) return false;
  const rlimit raised{limit.now > limit.highest / 2 ? limit.highest : std::max<rlim_t>(2 * limit.now, 1),
                      limit.highest};
  const int why = errno;  // that of the call for which it is raised
  const bool done = setrlimit(RLIMIT_NOFILE, &raised) == 0;
  errno = why;
  return done;
}

Status descriptor_error(int errno_value, const std::string& what, const char* whose) {
  Status status = system_error(errno_value, what);
  if (errno_value != EMFILE) return status;
  return error(status.code(), "{} (RLIMIT_NOFILE of {} process is {}, also its hard limit: ulimit -Hn)",
               status.message(), whose, descriptor_limit().highest);
}

void make_room_above(int descriptor) {
  if (static_cast<uint64_t>(descriptor) >= descriptor_limit().now / 2) raise_descriptor_limit();
}

}  // namespace epccl
