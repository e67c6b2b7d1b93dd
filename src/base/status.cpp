#include "base/status.hpp"

#include <cstring>

#include "base/never_destroyed.hpp"

namespace epccl {

void SparseText::Free::operator()(const std::string* text) const {
  std::default_delete<const std::string>()(text);
}

SparseText::Text SparseText::make(std::string text) {
  return Text(std::make_unique<const std::string>(std::move(text)).release());
}

const std::string& SparseText::nothing() {
  static NeverDestroyed<const std::string> empty;
  return *empty;
}

std::string text_of_error(int errno_value) {
  char text[128];
  // GNU strerror_r: thread-safe, may return a static string instead of filling `text`.
  return strerror_r(errno_value, text, sizeof text);
}

Status system_error(int errno_value, const std::string& what) {
  return error(Code::system_error, "{}: {} (errno {})", what, text_of_error(errno_value), errno_value);
}

}  // namespace epccl
