// How ranks wait: what their communicator's settings and its node say of it.
#pragma once

#include <vector>

namespace epccl::runtime {

struct WaitPolicy {
  double spin_seconds = 0;    // 0 where ranks outnumber cores
  double yield_seconds = -1;  // < 0: by what is waited for
  double timeout_seconds = 30;
  double first_warning = 60;   // EPCCL_WAIT_WARNING, seconds
  double most_in_driver = 20;  // EPCCL_CUDA_STUCK, seconds
  bool share_cores = false;    // ranks of the node outnumber its cores
  // Where this rank goes when it begins a call, if it shares cores, and else when it meets another one on its core; -1: it stays.
  int home_core = -1;
  std::vector<int> neighbours =
      {};  // ranks of the node by position, if this one can see their processes; else empty
};

}  // namespace epccl::runtime
