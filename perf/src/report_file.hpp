// A file that holds a whole report at any time: what is written takes the place of what was there.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::perf {

class ReportFile {
 public:
  /// Nothing is written yet, and what the file holds stays until then. Error: it cannot be written.
  static Result<ReportFile> open(const std::string& path);

  /// By a file beside it that is renamed. Else (a pipe, or a folder that takes no files) it is written itself, and only once.
  bool is_replaced() const { return !in_place_; }
  Status write(std::string_view text);

 private:
  Status replace(std::string_view text) const;
  Result<UniqueFd> create_beside() const;

  std::string path_, beside_;
  UniqueFd in_place_;
  bool is_appended_ = false;  // it is where the table goes as well
  mode_t mode_ = 0;           // of the file that is replaced; 0: there is none
};

}  // namespace epccl::perf
