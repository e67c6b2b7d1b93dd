// What the rules of a handle's layout may be, and what of them follows from the others.
#pragma once

#include "base/status.hpp"
#include "ep/handle/group.hpp"
#include "ep/layout/layout.hpp"

namespace epccl::ep {

/// Sets what the group and static mode decide. Error, the same on every rank that was given the same: there is no such layout.
Status complete_rules(SlotRules& rules, const Group& group);

}  // namespace epccl::ep
