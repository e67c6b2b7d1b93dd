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

/// Predicted time with these parameters.
double predict(const topology::Cluster& cluster, const CollectiveCall& call,
               const CollectiveParameters& parameters, const CostParameters& cost);

/// The best: `base` with form, carriers, alone, relay and split set. `forced` restricts the form.
FormChoice choose_form(const topology::Cluster& cluster, const CollectiveCall& call,
                       const CostParameters& cost, const CollectiveParameters& base,
                       std::optional<Form> forced);

}  // namespace epccl::algorithms
