#include "perf/src/measuring_options.hpp"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "base/settings.hpp"

namespace epccl::perf {

std::string iterations_text(const MeasuringOptions& options) {
  return options.budget ? "by budget" : std::to_string(options.iterations);
}

std::string describe(const MeasuringOptions& o) {
  std::string text = fmt::format("iters {} warmup {} budget {} check {}", o.iterations, o.warmup,
                                 o.budget.value_or(0), o.check);
  if (o.overlap) text += fmt::format(" overlap {} of {}", o.overlap->compute_ratio, o.overlap->gemm_size);
  if (o.device != "host") text += fmt::format(" device {} ranks {}", o.device, o.ranks_per_gpu);
  if (o.split) text += " split";
  if (o.graph_launches > 0) text += fmt::format(" graph {}", o.graph_launches);
  for (const std::string& engine : o.engines) text += " engine " + engine;
  return text;
}

Status check_range(const char* option, long value, long lowest, long highest) {
  if (value >= lowest && value <= highest) return {};
  if (lowest == highest)
    return error(Code::invalid_argument, "{} {}: only {} is supported", option, value, lowest);
  return error(Code::invalid_argument, "{} {}: want {} to {}", option, value, lowest, highest);
}

namespace {

/// A script whose variable is empty did not mean the default.
Status check_not_empty(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_items_expected_min() == 0 || !option->results().back().empty())
      continue;
    const bool is_long = !option->get_lnames().empty();
    return error(Code::invalid_argument, "{}{} \"\": want a value", is_long ? "--" : "",
                 option->get_single_name());
  }
  return {};
}

}  // namespace

Result<std::string> parse_arguments(CLI::App& app, const std::vector<const char*>& words,
                                    const std::string& hint) {
  // As nccl-tests: what comes later counts.
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() == 1 && !option->get_positional())
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.allow_extras();  // or CLI11 would list them from the last to the first
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what());
  } catch (const CLI::ParseError& parse_error) {
    return error(Code::invalid_argument, "{} ({} lists what there is)", parse_error.what(), hint);
  }
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) {
    EPCCL_TRY(check_not_empty(app));
    return std::string();
  }
  return error(Code::invalid_argument, "unexpected argument{}: {} ({} lists what there is)",
               extras.size() > 1 ? "s" : "", fmt::join(extras, " "), hint);
}

void MeasuringFlags::add_to(CLI::App& app) {
  iterations_option_ = app.add_option("-n,--iters", iterations_, "Timed iterations of a size (default 20)");
  iterations_option_->option_text("N");
  warmup_option_ = app.add_option("-w,--warmup_iters", warmup_,
                                  "Iterations before them, not timed (default 5; 1 with --budget)");
  warmup_option_->option_text("N");
  budget_option_ = app.add_option(
      "--budget", budget_, "Seconds of timed iterations per size: runs 7 to 400 of them instead of -n");
  budget_option_->option_text("S");
  app.add_option("-c,--check", check_, "Check the data of every size (default 1)")->option_text("0|1");
  app.add_option(
         "-a,--average", average_,
         "The ranks' times of an iteration become one: 0 rank 0, 1 average, 2 minimum, 3 maximum (default 3)")
      ->option_text("0..3");
  app.add_option("-z,--blocking", blocking_,
                 "Accepted for nccl-tests' sake: every call is waited for in any case, and each iteration "
                 "has a barrier before it")
      ->option_text("0|1");
  app.add_option(
         "-R,--local_register", registered_,
         fmt::format(
             "1: buffers of epcclMemAlloc, registered; 0: ordinary memory, 64-byte aligned (default {})",
             registered_))
      ->option_text("0|1");
  app.add_flag("--stream", stream_,
               "Issue the calls on a created stream and synchronize it (default: NULL stream)");
  app.add_option("-t,--nthreads", threads_, "Only 1: a rank is a process")->option_text("1");
  app.add_option("-g,--ngpus", devices_, "Only 1: a rank is a process")->option_text("1");
  app.add_option("-T,--timeout", timeout_, "Seconds to wait for a silent rank (default: EPCCL_TIMEOUT)")
      ->option_text("S");
  app.add_option(
         "--link-rate", link_rate_,
         "Rate of a node's network link for %wire: 4gbit, 100mbit, or none (default: EPCCL_LINK_RATE)")
      ->option_text("RATE");
  app.add_option("--device", device_,
                 "Whose memory and copy engines: host or cuda, where buffers are a GPU's (default host)")
      ->option_text("host|cuda");
  sharing_option_ = app.add_option("--ranks-per-gpu", ranks_per_gpu_,
                                   "With --device cuda: ranks of a node that share a GPU (default 1)");
  sharing_option_->option_text("N");
  app.add_option("-G,--graph,--cudagraph", graph_launches_,
                 "With --device cuda: capture the iterations into one CUDA graph and launch it N times "
                 "(default 0: calls are not captured)")
      ->option_text("N");
  app.add_flag("--split", split_,
               "Also measure, in as many iterations more, what the time goes to: kernels, copies, waits for "
               "other ranks, the host");
  app.add_option("--copy-engine", engine_,
                 fmt::format("Who moves the data: auto, always or never{} (default: EPCCL_COPY_ENGINE)",
                             all_engines_ ? ", or all: one row of each" : ""))
      ->option_text("WHEN");
  overlap_option_ =
      app.add_option("--overlap", overlap_,
                     "Compute (gemm: matrix products) while the calls move on in the background, "
                     "and report what of them stays exposed; needs a BLAS, with --device cuda cuBLAS");
  overlap_option_->option_text("[gemm]")->expected(0, 1);
  compute_ratio_option_ = app.add_option(
      "--compute-ratio", compute_ratio_,
      fmt::format("With --overlap: how long to compute, in times of the calls alone (default {})",
                  OverlapRequest{}.compute_ratio));
  compute_ratio_option_->option_text("X");
  gemm_size_option_ = app.add_option(
      "--gemm-size", gemm_size_,
      fmt::format("With --overlap --device cuda: N of the products of N x N matrices (default {})",
                  OverlapRequest{}.gemm_size));
  gemm_size_option_->option_text("N");
  app.add_option("-J,--output_file", output_file_,
                 "Also write the results as JSON to this file: what there is so far after every row, and all "
                 "at the end")
      ->option_text("FILE");
}

Status MeasuringFlags::check_numbers() const {
  constexpr int many = 1'000'000;
  EPCCL_TRY(check_range("--iters", iterations_, 1, many));
  if (warmup_option_->count() > 0) EPCCL_TRY(check_range("--warmup_iters", warmup_, 0, many));
  EPCCL_TRY(check_range("--check", check_, 0, 1));
  EPCCL_TRY(check_range("--average", average_, 0, 3));
  EPCCL_TRY(check_range("--blocking", blocking_, 0, 1));
  EPCCL_TRY(check_range("--local_register", registered_, 0, 1));
  EPCCL_TRY(check_range("--nthreads", threads_, 1, 1));
  EPCCL_TRY(check_range("--ngpus", devices_, 1, 1));
  if (budget_option_->count() > 0 && !(budget_ > 0 && std::isfinite(budget_))) {
    return error(Code::invalid_argument, "--budget {}: want seconds, more than 0", budget_);
  }
  if (budget_option_->count() > 0 && iterations_option_->count() > 0)
    return error(Code::invalid_argument, "--iters: not with --budget, which chooses the iterations");
  if (!(timeout_ >= 0 && std::isfinite(timeout_))) {
    return error(Code::invalid_argument, "--timeout {}: want seconds", timeout_);
  }
  return {};
}

Status MeasuringFlags::read_link_rate(const std::string& environment_rate, MeasuringOptions& options) const {
  const bool typed = !link_rate_.empty();
  const std::string& rate = typed ? link_rate_ : environment_rate;
  if (rate.empty() || (typed && rate == "none"))
    return {};  // the library, too, wants a rate of EPCCL_LINK_RATE
  auto parsed = settings::parse_rate(rate);
  if (!parsed.ok()) {
    return std::move(parsed).take_status().with_context(typed ? "--link-rate" : "EPCCL_LINK_RATE");
  }
  options.link_rate = *parsed;
  return {};
}

Status MeasuringFlags::read_overlap(MeasuringOptions& options) const {
  if (overlap_option_->count() == 0) {
    if (gemm_size_option_->count() > 0) return {Code::invalid_argument, "--gemm-size needs --overlap"};
    if (compute_ratio_option_->count() == 0) return {};
    return error(Code::invalid_argument, "--compute-ratio needs --overlap");
  }
  if (!overlap_.empty() && overlap_ != "gemm")
    return error(Code::invalid_argument, "--overlap {}: want gemm", overlap_);
  constexpr double least = 0.01, most = 100;
  if (!(compute_ratio_ >= least && compute_ratio_ <= most))
    return error(Code::invalid_argument, "--compute-ratio {}: want {} to {}", compute_ratio_, least, most);
  constexpr int largest = 32768;
  if (gemm_size_option_->count() > 0 && device_ != "cuda")
    return {Code::invalid_argument, "--gemm-size needs --device cuda"};
  EPCCL_TRY(check_range("--gemm-size", gemm_size_, 1, largest));
  options.overlap = OverlapRequest{compute_ratio_, gemm_size_};
  return {};
}

Status MeasuringFlags::read_device(MeasuringOptions& options) const {
  if (device_ != "host" && device_ != "cuda")
    return error(Code::invalid_argument, "--device {}: want host or cuda", device_);
  EPCCL_TRY(check_range("--ranks-per-gpu", ranks_per_gpu_, 1, 1024));
  EPCCL_TRY(check_range("--graph", graph_launches_, 0, 1'000'000));
  if (device_ == "host" && graph_launches_ > 0)
    return error(Code::invalid_argument, "--graph needs --device cuda");
  if (graph_launches_ > 0 && options.budget)
    return error(Code::invalid_argument, "--graph: give the calls of the graph by -n, not by --budget");
  if (graph_launches_ > 0 && options.overlap)
    return error(Code::invalid_argument, "--graph: not with --overlap");
  if (split_ && graph_launches_ > 0)
    return error(Code::invalid_argument, "--split: not with --graph, whose runs are not measured");
  if (split_ && options.overlap) return error(Code::invalid_argument, "--split: not with --overlap");
  options.split = split_;
  options.graph_launches = graph_launches_;
  if (device_ == "host" && sharing_option_->count() > 0)
    return error(Code::invalid_argument, "--ranks-per-gpu needs --device cuda");
  if (device_ == "cuda" && stream_)
    return error(Code::invalid_argument,
                 "--stream is of the host: with --device cuda calls use the NULL stream");
  options.device = device_;
  options.ranks_per_gpu = ranks_per_gpu_;
  return {};
}

Status MeasuringFlags::read_engines(MeasuringOptions& options) const {
  if (engine_ == "all" && all_engines_) {
    options.engines = {"never", "always"};
  } else if (engine_.empty() || engine_ == "auto" || engine_ == "always" || engine_ == "never") {
    options.engines = {engine_};
  } else {
    return error(Code::invalid_argument, "--copy-engine {}: want {}", engine_,
                 all_engines_ ? "auto, always, never or all" : "auto, always or never");
  }
  return {};
}

Status MeasuringFlags::read(const std::string& environment_rate, MeasuringOptions& options) const {
  EPCCL_TRY(check_numbers());
  options.iterations = iterations_;
  if (budget_option_->count() > 0) options.budget = budget_;
  options.warmup = warmup_option_->count() > 0 ? warmup_ : options.budget ? 1 : 5;
  options.check = check_ != 0;
  options.average = static_cast<Average>(average_);
  options.blocking = blocking_ != 0;
  options.registered = registered_ != 0;
  options.stream = stream_;
  options.timeout = timeout_;
  options.output_file = output_file_;
  EPCCL_TRY(read_overlap(options));
  EPCCL_TRY(read_device(options));
  EPCCL_TRY(read_engines(options));
  return read_link_rate(environment_rate, options);
}

}  // namespace epccl::perf
