// This program has no GPU: the host runs its kernels.
#include "launched.hpp"

namespace epccl::device::kernels::testing {

void run(const Launch<ReduceParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<MoveParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<SpreadParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<SumParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<LayoutParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<TermsParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<TokenStreamParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<WeightsParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<CountersParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<TopkParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<CopiesParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<SignalParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}
void run(const Launch<HostCallParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}

void run(const Launch<WordParameters>& launch, std::mt19937_64& random) {
  run_on_host(launch, random);
}

}  // namespace epccl::device::kernels::testing
