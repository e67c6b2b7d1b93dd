#pragma once

#include <string>

namespace epccl::runtime {

/// Who a rank claims to be; claims are proved with the secret.
struct Member {
  int rank = -1;
  int pid = 0;
  std::string host;
};

/// "rank 3 (host node1, pid 4242)"
std::string describe(const Member& member);

}  // namespace epccl::runtime
