#include "perf/src/overlap/overlap.hpp"

#include <algorithm>

namespace epccl::perf {
namespace {

double over(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

}  // namespace

double Overlap::exposed_fraction() const {
  return over(exposed(), communication.median);
}

double Overlap::background_fraction() const {
  return over(background.median, communication.median);
}

double Overlap::dilation() const {
  return over(slower.median, compute.median);
}

double Overlap::fraction_of_ideal() const {
  const double ideal = std::max(compute.median, communication.median);
  return over(communication.median - exposed(), serial() - ideal);
}

}  // namespace epccl::perf
