// What a library under measurement provides.
#pragma once

#include <string>
#include <vector>

#include "layout.hpp"

namespace peers {

/// The collectives beside alltoall, with rank 0 as the root and sums of float.
enum class Collective { allgather, reduce_scatter, allreduce, broadcast, reduce, gather, scatter };
inline constexpr const char* collective_names[] = {"allgather", "reduce_scatter", "allreduce", "broadcast",
                                                   "reduce",    "gather",         "scatter"};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void barrier() = 0;
  /// Element-wise maximum over ranks, on every rank.
  virtual std::vector<double> maximum(std::vector<double> values) = 0;
  virtual void alltoall(const char* send, char* recv, int bytes_per_pair) = 0;
  virtual void alltoallv(const char* send, char* recv, const Layout& layout) = 0;
  /// False where this peer cannot do it.
  virtual bool twostage(const char* /*send*/, char* /*recv*/, int /*bytes_per_pair*/) { return false; }
  /// `count` floats are those of all ranks' buffers, or of one part where each rank has one. broadcast is in place: it has no
  /// input, only the root's output. False where this peer cannot do it.
  virtual bool collective(Collective /*which*/, const float* /*send*/, float* /*recv*/, int /*count*/) {
    return false;
  }
};

/// An operation with a size: its buffers, its call, and whether the data came out right.
class Task {
 public:
  virtual ~Task() = default;
  virtual void fill() = 0;
  virtual void call() = 0;
  /// Of a call after fill().
  virtual bool right() const = 0;
};

}  // namespace peers
