#include "device/kernels/body/quantise.hpp"
#include "device/kernels/body/row_sum.hpp"
#include "device/kernels/kernel_list.hpp"
#include "host_warp.hpp"
#include "launched.hpp"
#include "run_named.hpp"

namespace epccl::device::kernels::testing {

void run_on_host(const Launch<MoveParameters>& launch, std::mt19937_64& random) {
  EPCCL_MOVE_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<SpreadParameters>& launch, std::mt19937_64& random) {
  EPCCL_SPREAD_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<SumParameters>& launch, std::mt19937_64& random) {
  EPCCL_SUM_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

}  // namespace epccl::device::kernels::testing
