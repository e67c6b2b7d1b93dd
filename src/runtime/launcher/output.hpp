// Forwards what a rank prints, line by line, each with "[rank] " in front and written in one piece.
#pragma once

#include <string>

#include "base/unique_fd.hpp"

namespace epccl::launcher {

class LineForwarder {
 public:
  /// From `source` (non-blocking) to the descriptor `target`, which is not owned.
  LineForwarder(UniqueFd source, int target, int rank);

  int fd() const { return source_.get(); }
  /// Forwards what there is. False at the end of the stream, after its last line, or when nobody reads the
  /// target.
  bool forward();
  /// The end of the stream as far as it matters: what is there goes out, also an unfinished line.
  void finish();
  /// Why something could not be written, an errno; 0: all was, or nobody reads the target any more.
  int error() const { return error_; }

 private:
  bool write_lines(bool unfinished_too);

  UniqueFd source_;
  int target_;
  std::string prefix_;
  std::string pending_;
  int error_ = 0;
};

}  // namespace epccl::launcher
