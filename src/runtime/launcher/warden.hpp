// A small process that outlives epccl-run for a moment: when epccl-run is killed so that it cannot clean up
// itself, the warden ends what the job has left and removes its store.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::launcher {

class Warden {
 public:
  /// Must be called before any rank is started.
  static Result<Warden> start(const std::string& store);
  Warden(Warden&&) = default;
  Warden& operator=(Warden&&) = delete;
  /// Relieves it: nothing is left to clean up.
  ~Warden();

 private:
  Warden(UniqueFd line, pid_t pid) : line_(std::move(line)), pid_(pid) {}

  UniqueFd line_;  // closes with this process, however it ends
  pid_t pid_;
};

}  // namespace epccl::launcher
