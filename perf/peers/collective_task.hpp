// The other collectives, on floats: small whole numbers, whose sums are exact in any order.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "peer.hpp"

namespace peers {

inline std::optional<Collective> collective_of(std::string_view name) {
  for (size_t i = 0; i < std::size(collective_names); i++)
    if (name == collective_names[i]) return static_cast<Collective>(i);
  return std::nullopt;
}

class CollectiveTask final : public Task {
 public:
  /// `size`: bytes of the whole, as epccl-perf and nccl-tests have it.
  CollectiveTask(Peer& peer, Collective which, size_t size) : peer_(peer), which_(which) {
    const auto ranks = static_cast<size_t>(peer.ranks());
    const size_t whole = size / sizeof(float) / ranks * ranks;
    count_ = in_parts() ? whole / ranks : whole;
    const bool at_root = peer.rank() == 0;
    const bool part_in = which == Collective::allgather || which == Collective::gather;
    const bool part_out = which == Collective::reduce_scatter || which == Collective::scatter;
    send_.resize(part_in ? count_ : which == Collective::scatter && !at_root ? 0 : whole);
    const bool nothing = !at_root && (which == Collective::reduce || which == Collective::gather);
    recv_.resize(part_out ? count_ : nothing ? 0 : whole);
  }

  void fill() override {
    for (size_t i = 0; i < send_.size(); i++) send_[i] = value(peer_.rank(), i);
    std::fill(recv_.begin(), recv_.end(), -1.0f);
    if (which_ == Collective::broadcast && peer_.rank() == 0)
      std::copy(send_.begin(), send_.end(), recv_.begin());
  }

  void call() override {
    if (!peer_.collective(which_, send_.data(), recv_.data(), static_cast<int>(count_)))
      throw std::runtime_error("this peer does not have it");
  }

  bool right() const override {
    for (size_t i = 0; i < recv_.size(); i++)
      if (recv_[i] != expected(i)) return false;
    return true;
  }

 private:
  static float value(int rank, size_t i) {
    return static_cast<float>((static_cast<size_t>(rank) * 7 + i * 3 + (i >> 9)) % 61);
  }

  bool in_parts() const {
    return which_ != Collective::allreduce && which_ != Collective::broadcast && which_ != Collective::reduce;
  }

  float sum(size_t i) const {
    float total = 0;
    for (int rank = 0; rank < peer_.ranks(); rank++) total += value(rank, i);
    return total;
  }

  float expected(size_t i) const {
    const size_t before = static_cast<size_t>(peer_.rank()) * count_;
    switch (which_) {
      case Collective::allgather:
      case Collective::gather:
        return value(static_cast<int>(i / count_), i % count_);
      case Collective::scatter:
        return value(0, before + i);
      case Collective::broadcast:
        return value(0, i);
      case Collective::reduce_scatter:
        return sum(before + i);
      default:
        return sum(i);
    }
  }

  Peer& peer_;
  Collective which_;
  size_t count_ = 0;
  std::vector<float> send_, recv_;
};

}  // namespace peers
