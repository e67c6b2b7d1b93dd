// The double has no code of kernels here, so that it can keep the host away from its GPU memory: queues wait by the driver.
#include <cstdlib>

namespace {

[[maybe_unused]] const bool is_said = setenv("EPCCL_CUDA_SIGNALS", "driver", 1) == 0;

}  // namespace
