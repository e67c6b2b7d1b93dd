// Whether what all sources say of themselves can be a routing of one handle.
#pragma once

#include <span>

#include "base/status.hpp"
#include "ep/handle/group.hpp"
#include "ep/routing/layout_message.hpp"

namespace epccl::ep {

/// Ranks that disagree are named, and a rank whose own arguments are wrong. All ranks have the same headers before them, by rank, and
/// say the same. `static_topk`: the handle's, in static mode; else 0.
Status check_headers(std::span<const SourceHeader> headers, const GroupOptions& options,
                     uint32_t static_topk);

}  // namespace epccl::ep
