// Runs launches by their kernels' names: on the host, or where there is a GPU.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <random>

#include "device/kernels/launch.hpp"

namespace epccl::device::kernels::testing {

[[noreturn]] inline void no_kernel(const char* name) {
  std::fprintf(stderr, "there is no kernel %s\n", name);
  std::abort();
}

void run_on_host(const Launch<ReduceParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<MoveParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<SpreadParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<SumParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<LayoutParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<TermsParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<TokenStreamParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<WeightsParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<CountersParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<TopkParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<CopiesParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<SignalParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<HostCallParameters>& launch, std::mt19937_64& random);
void run_on_host(const Launch<WordParameters>& launch, std::mt19937_64& random);

/// Where this program runs kernels (on_host.cpp, tests/device/kernels_on_gpu.cpp). What parameters point to is on the heap. Kernels of
/// several threads run at the same time.
void run(const Launch<ReduceParameters>& launch, std::mt19937_64& random);
void run(const Launch<MoveParameters>& launch, std::mt19937_64& random);
void run(const Launch<SpreadParameters>& launch, std::mt19937_64& random);
void run(const Launch<SumParameters>& launch, std::mt19937_64& random);
void run(const Launch<LayoutParameters>& launch, std::mt19937_64& random);
void run(const Launch<TermsParameters>& launch, std::mt19937_64& random);
void run(const Launch<TokenStreamParameters>& launch, std::mt19937_64& random);
void run(const Launch<WeightsParameters>& launch, std::mt19937_64& random);
void run(const Launch<CountersParameters>& launch, std::mt19937_64& random);
void run(const Launch<TopkParameters>& launch, std::mt19937_64& random);
void run(const Launch<CopiesParameters>& launch, std::mt19937_64& random);
void run(const Launch<SignalParameters>& launch, std::mt19937_64& random);
void run(const Launch<HostCallParameters>& launch, std::mt19937_64& random);
void run(const Launch<WordParameters>& launch, std::mt19937_64& random);

}  // namespace epccl::device::kernels::testing
