#include <algorithm>
#include <cassert>

#include "device/cuda/kernels/launch.hpp"

namespace epccl::device::cuda {

Launch<SignalParameters> signals_launch(const SignalParameters& parameters) {
  assert(parameters.post_count <= max_graph_posts && parameters.wait_count <= max_graph_waits);
  assert(parameters.begins == 0 || parameters.post_count > 0);
  Launch<SignalParameters> launch;
  launch.kernel = {"epccl_signals", Image::signals};
  launch.parameters = parameters;
  launch.blocks = 1;
  launch.threads = 32;
  return launch;
}

Launch<HostCallParameters> host_call_launch(const HostCallParameters& parameters) {
  Launch<HostCallParameters> launch;
  launch.kernel = {"epccl_host_call", Image::signals};
  launch.parameters = parameters;
  launch.blocks = 1;
  launch.threads = 32;
  return launch;
}

}  // namespace epccl::device::cuda
