// The command line of `epccl-perf moe`, `dispatch` and `combine`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epccl/ep.h"
#include "perf/src/datatype.hpp"
#include "perf/src/measuring_options.hpp"
#include "perf/src/moe/routing_trace.hpp"
#include "perf/src/moe/shapes.hpp"
#include "perf/src/moe/traffic.hpp"

namespace epccl::perf {
struct ValueNames;
}  // namespace epccl::perf

namespace epccl::perf::moe {

/// moe: a dispatch and the combine that brings its rows back.
enum class Operation : uint8_t { dispatch, combine, moe };
const char* to_string(Operation operation);
std::optional<Operation> parse_operation(std::string_view text);

/// --write-matrix: no run, but the counts of one.
struct MatrixRequest {
  std::string file;
  int ranks = 0;
  Copies copies = Copies::rank;
};

struct Options : MeasuringOptions {
  Operation operation = Operation::moe;
  std::vector<uint32_t> tokens;  // of a rank; empty: the trace's
  std::string shape_name;        // empty: none was named
  Shape shape;
  DataType type;  // bfloat16, float16 or float32
  bool fp8 = false;
  bool weights = false;
  uint32_t slots = 0;  // of a rank, for copies of experts; 0: experts lie as the library places them
  Layout layout = Layout::flat;
  bool beside_sockets = false;  // --overlap-sockets
  bool fixed = false;           // --static: all sizes from the largest of `tokens`
  bool undefined_padding = false;
  std::vector<epcclEpStrategy_t> strategies;
  uint64_t seed = 1;
  TraceChoice trace;
  std::optional<MatrixRequest> matrix;

  bool dispatches() const { return operation != Operation::combine; }
  /// Of an EP group: experts, or slots.
  uint32_t group_experts(int ranks) const {
    return slots > 0 ? slots * static_cast<uint32_t>(ranks) : shape.experts;
  }
  bool combines() const { return operation != Operation::dispatch; }
  /// Rows of an expert, in expert-major of static mode: each of the most tokens of each rank may have it. Else 0.
  uint32_t capacity(uint32_t max_tokens, int ranks) const {
    return fixed && layout == Layout::expert_major ? max_tokens * static_cast<uint32_t>(ranks) : 0;
  }
  /// Bytes of a token as a dispatch and as a combine carries it, without weights.
  uint64_t dispatched_token_bytes() const;
  uint64_t combined_token_bytes() const { return uint64_t{shape.hidden} * type.bytes; }
  /// Bytes of a row in the library's messages.
  uint64_t dispatch_row_bytes() const;
  uint64_t combine_row_bytes() const { return combined_token_bytes(); }
};

/// The datatype's name on this command line: float16 and float32 where nccl-tests says half and float.
const char* type_name(const DataType& type);

/// Everything that must be equal on every rank, as one line.
std::string describe(const Options& options);

struct CommandLine {
  Options options;
  std::string help;  // not empty: --help was given, this is to be printed
};

/// Errors are invalid_argument, one sentence or two. `environment_rate` is
/// EPCCL_LINK_RATE, or empty.
Result<CommandLine> parse_command_line(int argc, const char* const* argv,
                                       const std::string& environment_rate);

/// Adds what of this command line takes a value.
void add_value_names(ValueNames& names);

/// What --help says after the list of options.
std::string help_footer();

}  // namespace epccl::perf::moe
