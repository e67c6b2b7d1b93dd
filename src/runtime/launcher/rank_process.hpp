// One rank's process: leader of its own process group, and gone when epccl-run is gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::launcher {

struct RankSpec {
  int rank = 0;
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  // on top of this process's own
  bool capture_output = false;        // through pipes; else it has this process's own
  bool inherit_input = false;         // else /dev/null
  bool ignores_broken_pipes = false;  // SIGPIPE
};

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;           // also its process group
  UniqueFd output, errors;  // non-blocking; only when captured
};

/// Starts it. The error of a program that cannot be run has the code invalid_argument when there is no such
/// program.
Result<RankProcess> start_rank(const RankSpec& spec);

}  // namespace epccl::launcher
