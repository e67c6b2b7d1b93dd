// How all ranks of a group find each other in a store that may still hold what an earlier group of the same name left there: torchrun's
// store outlives the ranks that it starts again.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "communicator.hpp"

namespace epccl_torch {

/// Joins with all ranks of the group. From then on `store` is a part of what it was: of this group, and of no earlier one.
std::shared_ptr<Communicator> assemble(c10::intrusive_ptr<c10d::Store>& store, int ranks, int rank,
                                       const SharedTimeout& timeout, const std::string& name);

}  // namespace epccl_torch
