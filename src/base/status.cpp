#include "base/status.hpp"

#include <cstring>

namespace epccl {

std::string text_of_error(int errno_value) {
  char text[128];
  // GNU strerror_r: thread-safe, may return a static string instead of filling `text`.
  return strerror_r(errno_value, text, sizeof text);
}

Status system_error(int errno_value, const std::string& what) {
  return error(Code::system_error, "{}: {} (errno {})", what, text_of_error(errno_value), errno_value);
}

}  // namespace epccl
