// What was made of plans for a device's queues, by a text that names the call.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/status.hpp"

namespace epccl::runtime {

template <typename Program>
class ProgramCache {
 public:
  /// The one that was kept under `name`, or what `make` makes, a Result<Program>. It stays until the next call of this. `keep`: for the
  /// next such call, else it is made anew.
  template <typename Make>
  Result<Program*> get(const std::string& name, bool keep, const Make& make) {
    if (!keep) {
      EPCCL_ASSIGN(last_, make());
      return &last_;
    }
    if (const auto known = programs_.find(name); known != programs_.end()) return &known->second;
    EPCCL_ASSIGN(Program made, make());
    if (programs_.size() >= most_kept) programs_.clear();
    return &programs_.emplace(name, std::move(made)).first->second;
  }

 private:
  static constexpr size_t most_kept = 128;  // programs use few sizes; a sweep uses some dozens

  std::unordered_map<std::string, Program> programs_;
  Program last_;  // that is not to be kept
};

}  // namespace epccl::runtime
