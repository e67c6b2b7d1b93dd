// A put and its signal: bytes into memory that the other end has shown beforehand, and a word that tells it they are there.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.hpp"

namespace epccl::perf::rdma {

/// Two ends on one device, which one thread drives.
class PutPair {
 public:
  virtual ~PutPair() = default;
  /// Puts `bytes` from end `source` to the other; returns when that one has seen the signal.
  virtual Status put(int source, size_t bytes) = 0;
  /// What an end puts from, and what is put there.
  virtual std::span<std::byte> memory(int end) = 0;
};

/// As large messages of the verbs transport end: an RDMA write that carries the signal (its immediate) itself.
Result<std::unique_ptr<PutPair>> verbs_put_pair(size_t largest);

/// As UCX's users do it: ucp_put_nbx of the bytes, a fence, ucp_put_nbx of the word, for which the other end looks.
Result<std::unique_ptr<PutPair>> ucx_put_pair(size_t largest);

}  // namespace epccl::perf::rdma
