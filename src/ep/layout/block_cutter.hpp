// Cuts lists of tokens into blocks, and lays them out: packed, or each block in a place of its own, as large as it can become.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace epccl::ep {

class BlockCutter {
 public:
  BlockCutter(uint32_t tokens, uint32_t block_tokens)
      : tokens_(tokens),
        block_tokens_(std::max(block_tokens, 1U)),
        reciprocal_(block_tokens_ == 1 ? 0 : UINT64_MAX / block_tokens_ + 1),
        blocks_((tokens + block_tokens_ - 1) / block_tokens_) {}

  uint32_t tokens() const { return tokens_; }
  /// token / block_tokens, by multiplication: exact for all 32-bit numbers (Lemire, Kaser, Kurz: "Faster remainder by direct
  /// computation", 2019).
  uint32_t block_of(uint32_t token) const {
    __extension__ using Product = unsigned __int128;
    return reciprocal_ == 0 ? token : static_cast<uint32_t>(static_cast<Product>(token) * reciprocal_ >> 64);
  }
  uint32_t first_token(uint32_t block) const { return block * block_tokens_; }

  /// Where each block begins in a list of `count` tokens, ascending, whose i-th is in block block_of(i); and their end.
  template <typename BlockOf>
  std::vector<uint32_t> cut(size_t count, BlockOf block_of) const {
    // A branch for gaps only: where a block ends among random tokens is as good as random. Each token writes the begin of the
    // two blocks behind its own, as if it were the last before them.
    constexpr uint64_t one = uint64_t{1} << 32 | 1;  // for two numbers that are stored together
    std::vector<uint32_t> begin(blocks_ + 2, 0);
    uint32_t* const out = begin.data();
    size_t known = 0;
    uint64_t numbers = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t block = block_of(i);
      if (block > known) std::fill(out + known + 1, out + block + 1, static_cast<uint32_t>(i));
      numbers += one;
      std::memcpy(out + block + 1, &numbers, sizeof numbers);
      known = block + 2;
    }
    if (known < blocks_) std::fill(out + known + 1, out + blocks_ + 1, static_cast<uint32_t>(count));
    begin.resize(blocks_ + 1);
    return begin;
  }
  std::vector<uint32_t> cut(std::span<const uint32_t> tokens) const {
    return cut(tokens.size(), [&](size_t i) { return block_of(tokens[i]); });
  }

  /// The same where every token is in the list.
  std::vector<uint32_t> cut_all() const {
    std::vector<uint32_t> begin;
    for (size_t block = 0; block < blocks_; ++block)
      begin.push_back(static_cast<uint32_t>(block) * block_tokens_);
    begin.push_back(tokens_);
    return begin;
  }

  /// While a list is made: notes that the entry `index` of `token` is next.
  void before(uint32_t token, uint32_t index, std::vector<uint32_t>& begin) const {
    while (begin.size() <= block_of(token)) begin.push_back(index);
  }
  void finish(uint32_t count, std::vector<uint32_t>& begin) const { begin.resize(blocks_ + 1, count); }

  /// Where each block begins that has `per_token` places for each of its tokens.
  std::vector<uint32_t> lay_out(uint32_t per_token) const {
    std::vector<uint32_t> begin = cut_all();
    for (uint32_t& place : begin) place *= per_token;
    return begin;
  }

 private:
  uint32_t tokens_, block_tokens_;
  uint64_t reciprocal_;
  size_t blocks_;
};

}  // namespace epccl::ep
