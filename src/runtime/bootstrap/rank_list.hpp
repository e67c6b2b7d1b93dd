#pragma once

#include <string>

#include "base/log.hpp"

namespace epccl::runtime {

/// Ranks named in one sentence: "3, 5, 7 and 12 more"
class RankList {
 public:
  static constexpr int max_listed = 16;

  void add(int rank) {
    if (++count_ <= max_listed) text_ += fmt::format("{}{}", text_.empty() ? "" : ", ", rank);
  }
  /// With what the rank is in the communicator that this one was made of.
  void add(int rank, int of_parent) {
    add(rank);
    if (count_ <= max_listed) text_ += fmt::format(" (rank {} of the parent)", of_parent);
  }
  /// More that are not known here.
  void add_more(int count) { count_ += count; }
  int count() const { return count_; }
  std::string text() const {
    return count_ <= max_listed ? text_ : fmt::format("{} and {} more", text_, count_ - max_listed);
  }

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace epccl::runtime
