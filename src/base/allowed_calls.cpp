#include "base/allowed_calls.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace epccl {
namespace {

bool is_refusal(int errno_value) {
  return errno_value == EPERM || errno_value == EACCES || errno_value == ENOSYS;
}

}  // namespace

Status call_error(int errno_value, const char* call) {
  Status status = system_error(errno_value, call);
  if (!is_refusal(errno_value)) return status;
  return error(status.code(), "{}: a seccomp filter may forbid it", status.message());
}

// A filter sees a call before its descriptor is looked up: one that there is not does as well, and is refused otherwise.
Status check_allowed_calls() {
  epoll_event event{};
  const std::pair<const char*, int> tried[] = {{"poll", poll(nullptr, 0, 0) < 0 ? errno : 0},
                                               {"epoll_wait", epoll_wait(-1, &event, 1, 0) < 0 ? errno : 0},
                                               {"accept4", accept4(-1, nullptr, nullptr, 0) < 0 ? errno : 0}};
  for (const auto& [call, refused] : tried)
    if (is_refusal(refused)) return call_error(refused, call);
  return {};
}

}  // namespace epccl
