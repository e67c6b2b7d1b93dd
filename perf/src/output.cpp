#include "perf/src/output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/standard_output.hpp"
#include "perf/src/communicator.hpp"
#include "topology/host_id.hpp"

extern char** environ;

namespace epccl::perf {

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
  errno = 0;
  output.json_.open(json_file);
  if (!output.json_) return system_error(errno, "--output_file " + json_file);
  return output;
}

void Output::print(const std::string& text) {
  if (mine_ && printed_) printed_ = write_out(text);
}

bool Output::write_json(const nlohmann::ordered_json& document) {
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // host names may be any bytes
  json_ << document.dump(2, ' ', false, replace) << std::endl;
  if (!json_) fmt::print(stderr, "epccl-perf: cannot write {}\n", json_file_);
  return static_cast<bool>(json_);
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
