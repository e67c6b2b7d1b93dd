#include "device/kernels/body/copies.hpp"
#include "device/kernels/body/signals.hpp"
#include "device/kernels/body/token_streams.hpp"
#include "device/kernels/body/words.hpp"
#include "device/kernels/kernel_list.hpp"
#include "host_warp.hpp"
#include "launched.hpp"
#include "run_named.hpp"

namespace epccl::device::kernels::testing {

void run_on_host(const Launch<LayoutParameters>& launch, std::mt19937_64& random) {
  EPCCL_LAYOUT_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<TermsParameters>& launch, std::mt19937_64& random) {
  EPCCL_TERMS_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<TokenStreamParameters>& launch, std::mt19937_64& random) {
  EPCCL_TOKEN_STREAMS_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<WeightsParameters>& launch, std::mt19937_64& random) {
  EPCCL_WEIGHTS_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<CountersParameters>& launch, std::mt19937_64& random) {
  EPCCL_COUNTERS_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<TopkParameters>& launch, std::mt19937_64& random) {
  EPCCL_TOPK_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<CopiesParameters>& launch, std::mt19937_64& random) {
  EPCCL_COPIES_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<SignalParameters>& launch, std::mt19937_64& random) {
  EPCCL_SIGNALS_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<HostCallParameters>& launch, std::mt19937_64& random) {
  EPCCL_HOST_CALL_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

void run_on_host(const Launch<WordParameters>& launch, std::mt19937_64& random) {
  EPCCL_WORDS_KERNELS(EPCCL_RUN)
  no_kernel(launch.kernel.name);
}

}  // namespace epccl::device::kernels::testing
