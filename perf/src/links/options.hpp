// The command line of `epccl-perf links`: what each pair of ranks has of the network, or of its node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "perf/src/links/rounds.hpp"
#include "perf/src/measuring_options.hpp"

namespace epccl::perf {
struct ValueNames;
}  // namespace epccl::perf

namespace epccl::perf::links {

inline constexpr const char* operation = "links";
inline bool is_operation(std::string_view word) {
  return word == operation;
}

/// Of the shared part: iterations, warm-up, memory, device, timeout, file.
struct Options : MeasuringOptions {
  Pairs pairs = Pairs::rails_and_nodes;
  uint64_t bytes = uint64_t{4} << 20;  // of a message
  double threshold = 0.75;             // of what is usual: links below are slow
};

/// Everything that must be equal on every rank, as one line.
std::string describe(const Options& options);

struct CommandLine {
  Options options;
  std::string help;  // not empty: --help was given, this is to be printed
};

/// Errors are invalid_argument, one sentence or two.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

/// Adds what of this command line takes a value.
void add_value_names(ValueNames& names);

}  // namespace epccl::perf::links
