// The command line of epccl-perf: nccl-tests' options, and a few of its own.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "perf/src/datatype.hpp"
#include "perf/src/measuring_options.hpp"
#include "perf/src/operation.hpp"
#include "perf/src/pattern.hpp"
#include "perf/src/reduction_data.hpp"
#include "perf/src/sizes.hpp"

namespace epccl::perf {

struct ValueNames;

struct Options : MeasuringOptions {
  Operation operation = Operation::alltoall;
  Sweep sweep;
  bool sizes_given = false;    // -b or -e
  bool beside_copies = false;  // --overlap-copies
  bool grouped = false;        // a group of sends and receives instead of the collective
  int in_a_row = 1;            // calls of a timed iteration, or groups of them
  int group_calls = 1;         // calls of a group; 1: no group
  bool per_pair = false;       // sizes are bytes per rank pair
  std::vector<DataType> datatypes;
  std::vector<RedOp> redops;
  static constexpr int every_root = -1;
  int root = 0;  // or every_root, in turn
  bool out_of_place = true, in_place = true;
  std::vector<std::string> algorithms;
  Pattern pattern;

  /// Of the least that a call has, in bytes: an element, or one of every rank's part.
  uint64_t size_of_one(const DataType& type, int ranks) const;
};

/// Everything that must be equal on every rank, as one line.
std::string describe(const Options& options);

struct CommandLine {
  Options options;
  std::string help;  // not empty: --help was given, this is to be printed
};

/// Errors are invalid_argument, one sentence or two. `environment_rate` is EPCCL_LINK_RATE, or empty;
/// `environment_algorithm` EPCCL_ALGO, which --algo overrides.
Result<CommandLine> parse_command_line(int argc, const char* const* argv, const std::string& environment_rate,
                                       const std::string& environment_algorithm);

/// Adds what of this command line takes a value.
void add_value_names(ValueNames& names);

/// What --help says after the list of options.
const char* help_footer();

}  // namespace epccl::perf
