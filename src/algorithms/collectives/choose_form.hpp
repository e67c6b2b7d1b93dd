// The cost model that picks the form of a collective and its constants.
#pragma once

#include <optional>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/cost_parameters.hpp"

namespace epccl::algorithms {

struct FormChoice {
  CollectiveParameters parameters;
  double seconds = 0;  // predicted
  double flat_seconds = 0, two_level_seconds = 0;
};

/// What the model does not choose.
struct Forced {
  std::optional<Form> form;
  std::optional<Variant> variant;  // of calls that have it in a form that is allowed
  std::optional<int> carriers;     // of sums; too many: all
};

/// Predicted time with these parameters.
double predict(const topology::Cluster& cluster, const CollectiveSpec& call,
               const CollectiveParameters& parameters, const CostParameters& cost);

/// Carriers of a sum where each rank of a node has a NIC of its own: all that get a chunk each, but no fewer than `least`.
int carriers_of_rails(const topology::Cluster& cluster, const CollectiveSpec& call, uint64_t chunk_bytes,
                      int least);

/// The best: `base` with form, variant and carriers set.
FormChoice choose_form(const topology::Cluster& cluster, const CollectiveSpec& call,
                       const CostParameters& cost, const CollectiveParameters& base, const Forced& forced);

}  // namespace epccl::algorithms
