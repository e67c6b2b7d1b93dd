// Runs launches on the host by their kernels' names, as a device does.
#pragma once

#include <random>

#include "device/cuda/kernels/launch.hpp"

namespace epccl::device::cuda::testing {

void run(const Launch<ReduceParameters>& launch, std::mt19937_64& random);
void run(const Launch<MoveParameters>& launch, std::mt19937_64& random);
void run(const Launch<SpreadParameters>& launch, std::mt19937_64& random);
void run(const Launch<SumParameters>& launch, std::mt19937_64& random);
void run(const Launch<LayoutParameters>& launch, std::mt19937_64& random);
void run(const Launch<TermsParameters>& launch, std::mt19937_64& random);

}  // namespace epccl::device::cuda::testing
