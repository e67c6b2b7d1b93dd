// The kernel's small files.
#pragma once

#include <fstream>
#include <string>

namespace epccl::topology {

/// First line of a small file; "" when it cannot be read (the speed of an interface without one cannot).
inline std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace epccl::topology
