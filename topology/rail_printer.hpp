// A rail plan for people, and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "topology/rail_plan.hpp"

namespace epccl::topology {

/// A line per local position with its GPU, NICs, path class, GB/s when all send (and alone, where that is more), and why;
/// then the NICs with who meets on them, those not used, and the notes.
std::string format_rail_plan(const Machine& machine, const RailPlan& plan);

/// Everything a RailPlan holds; `gpu` and `nics` are positions in the machine's lists.
nlohmann::ordered_json rail_plan_json(const RailPlan& plan);

}  // namespace epccl::topology
