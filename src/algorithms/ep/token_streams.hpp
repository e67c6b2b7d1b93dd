// What one rank knows of a dispatch (or the combine that reverses it), as far as plans are concerned.
//
// A *stream* is what one source rank sends to one *relay*: rows (tokens), in ascending order of token. The relay hands each
// row to the ranks of its node that own experts of the token, in a combine it adds up what these ranks give back.
//
//   strategy  a stream for every                                   rows
//   flat      rank of another node, its own relay                  tokens for that rank
//   dedup     other node; the relay stands on the source's rail    tokens for any rank of that node
//   gather    other node; the relay stands on the source's rail    all tokens
//
// To its own node a rank is its own relay: rows go straight from its input.
//
// The tokens of a source are cut into *blocks*; a block's rows of one stream are one message. Streams take *turns* of some
// blocks: while all ranks keep to the order of streams each link carries what one node sends to one other. Messages are sent
// and received in one order that holds for all ranks: by turn, stream (see TokenExchange), block; so the first that is not
// complete can always go on, however small the rings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.hpp"

namespace epccl::algorithms {

enum class Strategy : uint8_t { flat, gather, dedup };
const char* to_string(Strategy strategy);

/// How a list is cut into blocks. Block b has the places [begin[b], begin[b + 1]): all of them are taken, or, where the list is
/// laid out for the longest it can become, as many as RowTables::counts[counts + b] says.
struct Blocks {
  std::vector<uint32_t> begin;
  uint32_t counts = plan::Step::no_count;

  size_t size() const { return begin.size() - 1; }
  uint32_t places() const { return begin.back(); }
  uint32_t most(size_t block) const { return begin[block + 1] - begin[block]; }
  plan::Builder::RowCount count(size_t block) const {
    return {most(block), counts == plan::Step::no_count ? counts : counts + static_cast<uint32_t>(block)};
  }
  /// Places of a block that are taken; of all blocks.
  uint32_t taken(size_t block, const plan::RowTables& tables) const {
    return counts == plan::Step::no_count ? most(block) : tables.counts[counts + block];
  }
  uint64_t taken(const plan::RowTables& tables) const {
    uint64_t all = 0;
    for (size_t block = 0; block < size(); ++block) all += taken(block, tables);
    return all;
  }
};

/// Rows of a stream that go to one rank: two lists of RowTables::rows, of equal length.
struct Delivery {
  int rank = -1;
  uint32_t rows = 0;  // list: rows of the stream (of the own stream: tokens)
  // List: rows of the rank's output; without one they follow each other from first_slot.
  uint32_t slots = plan::Step::no_list;
  uint32_t first_slot = 0;
  Blocks blocks;  // of both lists
};

struct TokenStream {
  static constexpr uint32_t every_token = plan::Step::no_list;

  int source = -1;
  int relay = -1;
  Blocks blocks;                     // of its rows
  uint32_t tokens = every_token;     // known to the source: list of the rows' tokens
  std::vector<Delivery> deliveries;  // known to the relay, the ranks in local order
  uint32_t first_sum = 0;            // known to the relay: sum first_sum + r is what comes back for row r
};

/// What a dispatch needs, and what a combine needs besides.
///
/// Terms of the relay's sums have the ranks of the node as sources 0, 1, ... by local position. Terms of a token's final sum
/// have them too, and after them, in the order of `outgoing`, the streams: what their relays send back.
struct TokenExchange {
  TokenStream own;  // to this rank's node; rows are tokens, its blocks cut the tokens
  // The order of streams: by distance from the source's node to the relay's, then from the source's local position to the
  // relay's. The same on both ends.
  std::vector<TokenStream> outgoing;  // this rank is the source
  std::vector<TokenStream> incoming;  // this rank is the relay
  // Of each other rank of the node: its own stream, with this rank's delivery alone. Empty until a dispatch fetches.
  std::vector<TokenStream> fetched;
  uint32_t first_final_sum = 0;                   // sum first_final_sum + t belongs to token t
  std::shared_ptr<const plan::RowTables> tables;  // lists and counts
  std::shared_ptr<const plan::RowTables>
      fetched_tables;  // tables, and the lists of `fetched`; null until a dispatch fetches
  std::shared_ptr<const plan::RowTables> sums;  // sums, and the same counts; null until a combine needs them
};

/// Constants of a build. Every rank must use the same.
struct TokenParameters {
  uint64_t row_bytes = 0;  // of one row, all its parts
  // A rank's scratch; the half of it must hold one message, and one block of a combine.
  uint64_t scratch_bytes = 8 << 20;
  uint64_t send_window = 512 << 10;
  uint32_t turn_blocks =
      1;  // of a combine: the half of scratch must hold as many blocks of any source, twice
  // A row's parts lie together in the input: all tokens can be sent from there.
  bool contiguous_input = false;
  // Of a dispatch: this rank fetches what ranks of its node have for it. It does where they cannot map its output. Ranks may differ.
  bool fetch = false;
};

}  // namespace epccl::algorithms
