#pragma once

#include <cstdint>
#include <string>

namespace epccl::runtime {

/// Who a rank claims to be; claims are proved with the secret.
struct Member {
  int rank = -1;
  int pid = 0;
  std::string host;
  uint64_t process = 0;  // this_process() there: containers may have one host's name, and in each a process 1
};

/// A random number of this process; a forked child has another. Only after start_crypto().
uint64_t this_process();

/// "rank 3 (host node1, pid 4242)"
std::string describe(const Member& member);

}  // namespace epccl::runtime
