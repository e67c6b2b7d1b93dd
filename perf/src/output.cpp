#include "perf/src/output.hpp"

#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/clock.hpp"
#include "base/standard_output.hpp"
#include "perf/src/communicator.hpp"
#include "topology/host_id.hpp"

extern char** environ;

namespace epccl::perf {
namespace {

std::string text_of(const nlohmann::ordered_json& document) {
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // host names may be any bytes
  return document.dump(2, ' ', false, replace) + "\n";
}

}  // namespace

bool write_out(const std::string& text) {
  const Status written = epccl::print(text);
  if (!written.ok()) fmt::print(stderr, "epccl-perf: {}\n", written.message());
  return written.ok();
}

Result<Output> Output::open(int rank, const std::string& json_file) {
  Output output;
  output.mine_ = rank == 0;
  output.json_file_ = json_file;
  if (!output.wants_json()) return output;
  auto file = ReportFile::open(json_file);
  if (!file.ok()) return std::move(file).take_status().with_context("--output_file");
  output.json_ = std::move(*file);
  return output;
}

void Output::print(const std::string& text) {
  if (mine_ && printed_) printed_ = write_out(text);
}

bool Output::wants_interim_json() {
  interim_began_ = now_seconds();
  return wants_json() && json_.is_replaced() && interim_began_ >= next_interim_;
}

void Output::write_interim_json(const nlohmann::ordered_json& document) {
  // Times as long as it took; with many short rows it would take longer than they do.
  constexpr double pause = 10;
  static_cast<void>(json_.write(text_of(document)));
  const double end = now_seconds();
  next_interim_ = end + pause * (end - interim_began_);
}

bool Output::write_json(const nlohmann::ordered_json& document) {
  const Status written = json_.write(text_of(document));
  if (!written.ok()) fmt::print(stderr, "epccl-perf: cannot write {}: {}\n", json_file_, written.message());
  return written.ok();
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts)};
}

Result<RunFacts> facts_before_joining(int argc, char** argv) {
  RunFacts facts;
  facts.arguments.assign(argv, argv + argc);
  facts.environment = relevant_environment(environ);
  facts.start_time = time_of_day();
  EPCCL_TRY(api_status("epcclGetVersion", epcclGetVersion(&facts.library_version)));
  return facts;
}

void complain(int rank, const Status& status) {
  fmt::print(stderr, "epccl-perf: rank {} on {}: {}\n", rank, topology::host_name(), status.message());
}

}  // namespace epccl::perf
