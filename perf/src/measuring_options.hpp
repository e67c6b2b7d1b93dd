// The part of the command line that every operation shares: how calls are timed, checked and reported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "perf/src/statistics.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace epccl::perf {

/// --overlap: how long to compute while data travels.
struct OverlapRequest {
  double compute_ratio = 1.2;  // times the calls alone
  int gemm_size = 8192;        // cuda: rows and columns of the matrices
};

struct MeasuringOptions {
  int iterations = 20;
  int warmup = 5;
  std::optional<double> budget;  // seconds per size; chooses the iterations
  bool check = true;
  std::string output_file;
  Average average = Average::maximum;
  bool blocking = false;
  bool registered = false;
  bool stream = false;
  double timeout = 0;               // seconds; 0: EPCCL_TIMEOUT
  std::optional<double> link_rate;  // bits per second and node
  std::optional<OverlapRequest> overlap;
  std::string device = "host";  // or "cuda"
  int ranks_per_gpu = 1;
  bool split = false;      // --split: also what the time goes to
  int graph_launches = 0;  // > 0: the iterations are one CUDA graph, launched so often
  std::vector<std::string> engines{
      ""};  // "auto", "always", "never": each is measured; "": as EPCCL_COPY_ENGINE says
};

/// Of a table's header: how many iterations a row has.
std::string iterations_text(const MeasuringOptions& options);

/// What must be equal on every rank, as text.
std::string describe(const MeasuringOptions& options);

/// Error: `option` `value` is not in lowest..highest.
Status check_range(const char* option, long value, long lowest, long highest);

/// Parses the command line, with the program's name, into what `app` was told of. The text to print if --help or --version was given, else nothing. `hint`: what to
/// type for the list of options.
Result<std::string> parse_arguments(CLI::App& app, const std::vector<const char*>& words,
                                    const std::string& hint);

/// What is typed, before it means anything.
class MeasuringFlags {
 public:
  /// `registered`: the default of -R. `all_engines`: whether there is --copy-engine all.
  MeasuringFlags(bool registered, bool all_engines)
      : registered_(registered ? 1 : 0), all_engines_(all_engines) {}
  MeasuringFlags(const MeasuringFlags&) = delete;  // the parser keeps addresses of members
  MeasuringFlags& operator=(const MeasuringFlags&) = delete;

  void add_to(CLI::App& app);
  /// `environment_rate` is EPCCL_LINK_RATE, or empty.
  Status read(const std::string& environment_rate, MeasuringOptions& options) const;

 private:
  Status check_numbers() const;
  Status read_overlap(MeasuringOptions& options) const;
  Status read_device(MeasuringOptions& options) const;
  Status read_engines(MeasuringOptions& options) const;
  Status read_link_rate(const std::string& environment_rate, MeasuringOptions& options) const;

  int iterations_ = 20, warmup_ = 5, check_ = 1, average_ = 3, blocking_ = 0, registered_, threads_ = 1,
      devices_ = 1, ranks_per_gpu_ = 1, graph_launches_ = 0;
  double budget_ = 0, timeout_ = 0;
  bool stream_ = false, split_ = false;
  const bool all_engines_;
  double compute_ratio_ = OverlapRequest{}.compute_ratio;
  int gemm_size_ = OverlapRequest{}.gemm_size;
  std::string link_rate_, output_file_, overlap_ = "gemm", engine_, device_ = "host";
  CLI::Option *iterations_option_ = nullptr, *warmup_option_ = nullptr, *budget_option_ = nullptr,
              *overlap_option_ = nullptr, *sharing_option_ = nullptr, *compute_ratio_option_ = nullptr,
              *gemm_size_option_ = nullptr;
};

}  // namespace epccl::perf
