#include "ep/handle/header_check.hpp"

#include <algorithm>

#include "ep/layout/layout.hpp"

namespace epccl::ep {

Status check_headers(std::span<const SourceHeader> headers, const GroupOptions& options,
                     uint32_t static_topk) {
  for (size_t rank = 0; rank < headers.size(); ++rank)
    if (headers[rank].group != headers[0].group)
      return error(
          Code::invalid_usage,
          "ranks disagree on the EP group of the handle: rank 0 has group {}, rank {} group {} (in the "
          "order in which these were made)",
          headers[0].group, rank, headers[rank].group);
  for (size_t rank = 0; rank < headers.size(); ++rank)
    if (headers[rank].handle != headers[0].handle)
      return error(Code::invalid_usage,
                   "ranks disagree on the EP handle: rank 0 updates handle {}, rank {} handle {} (groups and "
                   "handles are numbered together, handles by their first updates)",
                   headers[0].handle, rank, headers[rank].handle);
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    const SourceHeader &theirs = headers[rank], &first = headers[0];
    switch (theirs.problem) {
      case SourceHeader::none:
        break;
      case SourceHeader::too_many_tokens:
        return error(Code::invalid_argument,
                     "rank {} has {} tokens: the group's max_send_tokens_per_rank is {}", rank, theirs.tokens,
                     options.max_tokens);
      case SourceHeader::k_too_large:
        return error(Code::invalid_argument, "rank {} has a top-{} table: at most {} experts a token", rank,
                     theirs.k, max_topk);
      case SourceHeader::not_static_k:
        return error(Code::invalid_argument, "rank {} has a top-{} table: the handle's static_topk is {}",
                     rank, theirs.k, static_topk);
      default:
        return error(Code::invalid_argument,
                     "rank {}: topk_idx[{}][{}] is expert {}, but there are {} experts", rank,
                     theirs.bad_token, theirs.bad_k, theirs.bad_expert_id, options.experts);
    }
    const auto differ = [&](const char* what, uint64_t a, uint64_t b) {
      return error(Code::invalid_usage, "ranks disagree on {}: rank 0 has {}, rank {} has {}", what, a, rank,
                   b);
    };
    // A rank without tokens may not know k.
    const auto with_tokens =
        std::ranges::find_if(headers, [](const SourceHeader& it) { return it.tokens > 0; });
    if (theirs.tokens > 0 && theirs.k != with_tokens->k)
      return error(Code::invalid_usage, "ranks disagree on top-k: rank {} has {}, rank {} has {}",
                   with_tokens - headers.begin(), with_tokens->k, rank, theirs.k);
    if (theirs.layout != first.layout)
      return error(Code::invalid_usage, "ranks disagree on the layout: rank 0 has {}, rank {} has {}",
                   to_string(static_cast<SlotLayout>(first.layout)), rank,
                   to_string(static_cast<SlotLayout>(theirs.layout)));
    if (theirs.alignment != first.alignment)
      return differ("the alignment of experts", first.alignment, theirs.alignment);
    if (theirs.capacity != first.capacity)
      return differ("max_tokens_per_expert", first.capacity, theirs.capacity);
    if (theirs.pad != first.pad) return differ("padding to capacity", first.pad, theirs.pad);
    if (theirs.undefined_padding != first.undefined_padding)
      return differ("undefined_padding", first.undefined_padding, theirs.undefined_padding);
  }
  return {};
}

}  // namespace epccl::ep
