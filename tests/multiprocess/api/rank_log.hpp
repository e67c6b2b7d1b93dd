// What the process of a rank has logged.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace epccl::tests {

/// Of a process whose environment has setting() and EPCCL_DEBUG; removed at the end.
class Log {
 public:
  static std::pair<std::string, std::string> setting() { return {"EPCCL_DEBUG_FILE", place() + "%p"}; }
  Log() : file_(place() + std::to_string(getpid())) {}
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { std::filesystem::remove(file_); }
  std::string text() const {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  static std::string place() { return testing::TempDir() + "rank_log."; }
  const std::string file_;
};

}  // namespace epccl::tests
