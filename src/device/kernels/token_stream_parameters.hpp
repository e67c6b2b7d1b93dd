// What the kernels are given that make, from a layout that is there, the lists of plans of several nodes: those of ep::make_exchange()
// and ep::add_sums() in static mode. Two run one after the other, with the same parameters:
//
//   lists   each warp makes one block of one list: of what is sent, of what is received, or of what goes on to one rank from there
//   sums    the terms of what comes back for each token
//
// A list has a place for each row that it can ever have; of each block's places the first are taken, and counts say how many.
#pragma once

#include "device/kernels/layout_parameters.hpp"

namespace epccl::device::kernels {

/// The rows of a stream: block b begins with row b * block_tokens.
struct StreamRows {
  uint32_t source = 0;  // whose tokens they are
  uint32_t block_tokens = 1;
  uint32_t counts = 0;       // of its blocks: counts[counts + b]
  uint32_t every_token = 0;  // each token has a row; else those that go there
};
struct SentStream {
  StreamRows rows;
  uint32_t to = 0;           // a node, or a rank (TokenStreamParameters::to_ranks)
  uint32_t tokens = no_row;  // list: of each row its token; no_row: none
};
struct ReceivedStream {
  StreamRows rows;
  uint32_t first_sum = no_row;  // of what goes back for its rows; no_row: nothing does
};
/// What goes on to one rank: block b begins at place b * block_tokens * (by expert: the top-k; else 1).
struct DeliveredList {
  uint32_t stream = 0, peer = 0;
  uint32_t rows = 0, slots = 0;  // lists: which rows of the stream, and where they go there
  uint32_t counts = 0;
};
/// Where the terms of a token's sum come from, in their order.
struct SumPart {
  uint32_t stream = no_row;  // that was sent; no_row: this rank's node
  uint32_t source = 0;       // of the terms
  uint32_t ends_node = 0;    // the next is another node's
};

struct TokenStreamParameters {
  LayoutParameters layout;
  uint32_t to_ranks = 0;     // streams go to single ranks, and are relayed for nobody else
  uint32_t most_blocks = 0;  // of a stream
  const SentStream* sent = nullptr;
  const ReceivedStream* received =
      nullptr;  // in the order of layout.relayed; the last one is this rank's own
  const DeliveredList* deliveries = nullptr;
  const SumPart* parts = nullptr;
  uint32_t sent_count = 0, received_count = 0, delivery_count = 0, part_count = 0;

  uint32_t* counts = nullptr;
  uint32_t* rows = nullptr;  // all lists
  uint32_t* sent_rows =
      nullptr;  // [sent, max_tokens]: the row of each token that goes there; no_row: it does not
  // Where rows go on, for a kernel that hands out a block of them: row r of the i-th stream received to the targets [(i * max_tokens + r) *
  // k, + k). Of all but the last one; null: nobody asks.
  Target* handed = nullptr;
  // Sums are terms [s * k, + term_counts[s]).
  Term* terms = nullptr;
  uint32_t* term_counts = nullptr;
  uint32_t first_final_sum = 0;
  // Those of this rank's tokens inside its node, as TermsParameters has them.
  const Term* own_terms = nullptr;  // [max_tokens, k]
  const uint32_t* own_counts = nullptr;
};

static_assert(sizeof(TokenStreamParameters) <= most_parameter_bytes);

}  // namespace epccl::device::kernels
