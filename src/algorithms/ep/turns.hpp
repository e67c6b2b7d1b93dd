// The order in which the messages of several streams are sent and received.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "algorithms/ep/token_streams.hpp"

namespace epccl::algorithms {

/// use(stream, block) for every block of every stream: turns of `turn_blocks` blocks, in a turn stream by stream.
template <typename Use>
void for_each_message(const std::vector<TokenStream>& streams, size_t turn_blocks, Use use) {
  size_t blocks = 0;
  for (const TokenStream& stream : streams) blocks = std::max(blocks, stream.blocks.size());
  for (size_t first = 0; first < blocks; first += turn_blocks)
    for (const TokenStream& stream : streams)
      for (size_t block = first; block < std::min(first + turn_blocks, stream.blocks.size()); ++block)
        use(stream, block);
}

}  // namespace epccl::algorithms
