#include <cstring>

#include "device/kernels/body/reduce.hpp"
#include "device/kernels/kernel_list.hpp"
#include "host_warp.hpp"
#include "launched.hpp"

#define EPCCL_BARE(...) __VA_ARGS__

namespace epccl::device::kernels::testing {

void run_on_host(const Launch<ReduceParameters>& launch, std::mt19937_64& random) {
#define EPCCL_RUN(entry, join)                      \
  if (std::strcmp(launch.kernel.name, #entry) == 0) \
    return run(launch, random, reduce_body<EPCCL_BARE join, HostWarp>);
  EPCCL_REDUCE_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

}  // namespace epccl::device::kernels::testing
