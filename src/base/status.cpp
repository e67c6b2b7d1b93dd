#include "base/status.hpp"

#include <cstring>

namespace epccl {

Status system_error(int errno_value, const std::string& what) {
  char text[128];
  // GNU strerror_r: thread-safe, may return a static string instead of filling `text`.
  const char* reason = strerror_r(errno_value, text, sizeof text);
  return error(Code::system_error, "{}: {} (errno {})", what, reason, errno_value);
}

}  // namespace epccl
