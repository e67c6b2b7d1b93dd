#include "perf/src/overlap/overlap.hpp"

#include <algorithm>
#include <cmath>

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

std::pair<int, int> balance(double product, double call, double ratio, bool queues) {
  const double wanted = ratio * call;
  const auto products = std::max(1, static_cast<int>(std::lround(wanted / product)));
  const bool is_too_short = queues && wanted < product;
  return {products, is_too_short ? std::max(1, static_cast<int>(std::ceil(product / call))) : 1};
}

}  // namespace epccl::perf
