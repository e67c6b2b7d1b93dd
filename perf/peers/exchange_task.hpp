// alltoall, alltoallv and what is made of them.
#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "peer.hpp"

namespace peers {

class ExchangeTask final : public Task {
 public:
  ExchangeTask(Peer& peer, const std::string& operation, size_t size) : peer_(peer) {
    const int rank = peer_.rank(), ranks = peer_.ranks(), bytes = static_cast<int>(size);
    constexpr std::string_view moe = "moe:";
    const bool returns = operation.starts_with(moe);
    if (returns) {
      layout_ = matrix_layout(rank, ranks, operation.substr(moe.size()), size);
    } else if (operation == "alltoallv_zipf") {
      layout_ = zipf_layout(rank, ranks, size);
    } else {
      layout_ = uniform_layout(rank, ranks, size);
    }
    back_layout_ = returns ? layout_.reversed() : Layout{};
    send_.resize(layout_.send_total);
    recv_.resize(layout_.recv_total);
    back_.resize(back_layout_.recv_total);
    if (operation == "alltoall") {
      calls_ = {[this, bytes] { peer_.alltoall(send_.data(), recv_.data(), bytes); }};
    } else if (operation == "twostage") {
      calls_ = {[this, bytes] {
        if (!peer_.twostage(send_.data(), recv_.data(), bytes))
          throw std::runtime_error("no twostage here (unequal ranks per node, or not a peer that has it)");
      }};
    } else {
      calls_ = {[this] { peer_.alltoallv(send_.data(), recv_.data(), layout_); }};
      if (returns) calls_.emplace_back([this] { peer_.alltoallv(recv_.data(), back_.data(), back_layout_); });
    }
  }

  void fill() override {
    for (size_t peer = 0; peer < layout_.send_bytes.size(); peer++)
      for (int i = 0; i < layout_.send_bytes[peer]; i++)
        send_[static_cast<size_t>(layout_.send_offsets[peer] + i)] =
            pattern(peer_.rank(), static_cast<int>(peer), static_cast<size_t>(i));
    std::fill(recv_.begin(), recv_.end(), kPoison);
    std::fill(back_.begin(), back_.end(), kPoison);
  }

  void call() override {
    for (const auto& call : calls_) call();
  }

  bool right() const override {
    bool wrong = false;
    for (size_t peer = 0; peer < layout_.recv_bytes.size(); peer++)
      for (int i = 0; i < layout_.recv_bytes[peer]; i++)
        wrong |= recv_[static_cast<size_t>(layout_.recv_offsets[peer] + i)] !=
                 pattern(static_cast<int>(peer), peer_.rank(), static_cast<size_t>(i));
    return !wrong && std::equal(back_.begin(), back_.end(), send_.begin());
  }

 private:
  static constexpr char kPoison = static_cast<char>(0xa5);

  static char pattern(int source, int destination, size_t offset) {
    return static_cast<char>(static_cast<size_t>(source * 31 + destination * 7) + offset * 13 +
                             (offset >> 8) + 1);
  }

  Peer& peer_;
  Layout layout_, back_layout_;
  std::vector<std::function<void()>> calls_;
  std::vector<char> send_, recv_, back_;
};

}  // namespace peers
