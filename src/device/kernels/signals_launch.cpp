#include <algorithm>
#include <cassert>

#include "device/kernels/launch.hpp"

namespace epccl::device::kernels {
namespace {

template <typename Parameters>
Launch<Parameters> of_one_warp(const char* name, const Parameters& parameters) {
  Launch<Parameters> launch;
  launch.kernel = {name, Image::signals};
  launch.parameters = parameters;
  launch.blocks = 1;
  launch.threads = 32;
  return launch;
}

}  // namespace

Launch<SignalParameters> signals_launch(const SignalParameters& parameters) {
  assert(parameters.post_count <= max_graph_posts && parameters.wait_count <= max_graph_waits);
  assert(parameters.begins == 0 || parameters.post_count > 0);
  return of_one_warp("epccl_signals", parameters);
}

Launch<WordParameters> words_launch(const WordParameters& parameters) {
  assert(parameters.awaited_count <= max_awaited_words && parameters.raised_count <= max_raised_words);
  return of_one_warp("epccl_words", parameters);
}

Launch<HostCallParameters> host_call_launch(const HostCallParameters& parameters) {
  return of_one_warp("epccl_host_call", parameters);
}

}  // namespace epccl::device::kernels
