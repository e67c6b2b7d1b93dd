// Files and the limit of their size (RLIMIT_FSIZE, `ulimit -f`): who makes one larger than that is killed by SIGXFSZ, with nothing said.
// Memory that processes share is such a file.
#pragma once

#include <signal.h>

#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace epccl {

/// While it lives, what the calling thread writes beyond the limit fails, with EFBIG. Leaves errno as it is.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal();
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  ~NoFileSizeSignal();

 private:
  sigset_t before_;
  bool was_pending_;  // that one is not ours
};

/// Gives the file `bytes`. `what` it is for the error, which names the limit where that is in the way.
Status set_file_size(int fd, uint64_t bytes, const std::string& what);

}  // namespace epccl
