// What the program says: the table on standard output and the JSON file, both of rank 0 alone, and
// complaints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.hpp"
#include "perf/src/report_file.hpp"
#include "perf/src/run_facts.hpp"
#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::perf {

inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

/// Writes to standard output. False where that failed, which is then said.
bool write_out(const std::string& text);

/// On ranks other than 0 this does nothing.
class Output {
 public:
  /// Looks whether the JSON file can be written, unless `json_file` is empty: that is better known before the run than after it.
  static Result<Output> open(int rank, const std::string& json_file);

  void print(const std::string& text);
  /// Whether all of that was written.
  bool printed() const { return printed_; }
  bool wants_json() const { return mine_ && !json_file_.empty(); }
  /// Whether what has been measured so far should be written now: it takes little of the run's time.
  bool wants_interim_json();
  /// A run that is killed leaves this. Where it cannot be written, write_json() will say so.
  void write_interim_json(const nlohmann::ordered_json& document);
  /// False when the file could not be written, which is then said.
  bool write_json(const nlohmann::ordered_json& document);

 private:
  bool mine_ = false;
  bool printed_ = true;
  std::string json_file_;
  ReportFile json_;
  double interim_began_ = 0, next_interim_ = 0;  // now_seconds()
};

std::string time_of_day();

/// Everything about this run that is known before it joins: arguments, environment, the library's version.
Result<RunFacts> facts_before_joining(int argc, char** argv);

/// Says what is wrong, on standard error.
void complain(int rank, const Status& status);

}  // namespace epccl::perf
