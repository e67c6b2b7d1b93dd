#include "base/standard_output.hpp"

#include <cerrno>
#include <cstdio>

#include "base/file_size.hpp"

namespace epccl {

Status print(std::string_view text) {
  const NoFileSizeSignal none;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return system_error(errno, "cannot write standard output");
}

}  // namespace epccl
