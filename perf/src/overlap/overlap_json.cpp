#include "perf/src/overlap/overlap_json.hpp"

namespace epccl::perf {

nlohmann::ordered_json overlap_json(const Overlap& o) {
  constexpr double us = 1e6;
  return {{"communication_us", o.communication.median * us},
          {"compute_us", o.compute.median * us},
          {"overlapped_us", o.overlapped.median * us},
          {"compute_beneath_us", o.compute_beneath.median * us},
          {"exposed_us", o.exposed() * us},
          {"exposed_fraction", o.exposed_fraction()},
          {"dilation", o.dilation()},
          {"background_us", o.background.median * us},
          {"background_fraction", o.background_fraction()},
          {"fraction_of_ideal", o.fraction_of_ideal()},
          {"products", o.products},
          {"calls", o.calls},
          {"iterations", o.iterations}};
}

}  // namespace epccl::perf
