#include "perf/src/moe/count_file.hpp"

#include <cerrno>
#include <fstream>

#include "base/file_size.hpp"

namespace epccl::perf::moe {

std::string text_of(const CountMatrix& matrix) {
  std::string text;
  for (int source = 0; source < matrix.ranks(); ++source) {
    for (int destination = 0; destination < matrix.ranks(); ++destination)
      text += fmt::format("{}{}", destination == 0 ? "" : " ", matrix.at(source, destination));
    text += '\n';
  }
  return text;
}

Status write_counts(const CountMatrix& matrix, const std::string& path) {
  const NoFileSizeSignal none;
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text_of(matrix) << std::flush;
  return file ? Status() : system_error(errno, "--write-matrix " + path);
}

}  // namespace epccl::perf::moe
