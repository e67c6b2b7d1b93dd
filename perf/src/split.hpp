// --split: what the time of a call goes to.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace epccl::perf {

/// Seconds of an iteration, means over iterations and ranks, so that the parts add up. As epccl/profile.h has them, but for the
/// host's: that is all the rest of what the caller sees, with the way to the thread that makes the call and back.
struct Split {
  double total = 0, kernel = 0, copy = 0, signal = 0;
  int iterations = 0;
  double host() const { return total - kernel - copy - signal; }
};

/// The line below a row of a table.
std::string split_line(const Split& split);
nlohmann::ordered_json split_json(const Split& split);

}  // namespace epccl::perf
