// A network within a test: what two ends have sent each other is delivered in any order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "transports/transport.hpp"

namespace epccl::runtime {

using transports::Completion;
using transports::MessageKey;

/// What two ends have sent each other and wait for. Anything may be delivered next.
class Wire {
 public:
  explicit Wire(uint64_t seed) : random_(seed) {}
  struct Half {
    int from = 0;
    MessageKey key = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
    Completion* completion = nullptr;
  };
  void send(const Half& half) { sent_.push_back(half); }
  void recv(const Half& half) { posted_.push_back(half); }
  bool deliver() {
    std::ranges::shuffle(sent_, random_);
    for (auto sent = sent_.begin(); sent != sent_.end(); ++sent) {
      const auto posted = std::ranges::find_if(
          posted_, [&](const Half& half) { return half.from == sent->from && half.key == sent->key; });
      if (posted == posted_.end()) continue;
      sent->completion->finish(Completion::State::done);
      if (sent->bytes > posted->bytes) {
        posted->completion->status =
            error(Code::invalid_usage, "{} bytes for {}", sent->bytes, posted->bytes);
        posted->completion->finish(Completion::State::failed);
      } else {
        if (sent->bytes > 0) std::memcpy(posted->data, sent->data, sent->bytes);
        posted->completion->bytes = sent->bytes;
        posted->completion->finish(Completion::State::done);
      }
      posted_.erase(posted);
      sent_.erase(sent);
      return true;
    }
    return false;
  }
  size_t left() const { return sent_.size() + posted_.size(); }

 private:
  std::mt19937_64 random_;
  std::vector<Half> sent_, posted_;
};

class WireEnd : public transports::MessageTransport {
 public:
  WireEnd(Wire& wire, int rank, bool is_direct) : wire_(wire), rank_(rank), is_direct_(is_direct) {}

  const char* name() const override { return "wire"; }
  Status send(int, MessageKey key, const void* data, size_t bytes, Completion& completion) override {
    ++through_host;
    return start(key, data, bytes, completion);
  }
  Status recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) override {
    ++through_host;
    return post(peer, key, data, bytes, completion);
  }
  Result<std::shared_ptr<const transports::DeviceMemory>> device_memory(device::Device&, const void*,
                                                                        uint64_t) override {
    if (!is_direct_) return error(Code::invalid_usage, "not here");
    return std::shared_ptr<const transports::DeviceMemory>(std::make_shared<transports::DeviceMemory>());
  }
  Status send_from(const transports::DeviceMemory&, int, MessageKey key, const void* data, size_t bytes,
                   Completion& completion) override {
    return start(key, data, bytes, completion);
  }
  Status recv_into(const transports::DeviceMemory&, int peer, MessageKey key, void* data, size_t bytes,
                   Completion& completion) override {
    return post(peer, key, data, bytes, completion);
  }
  bool progress() override { return wire_.deliver(); }
  bool drained() override { return true; }
  int event_fd() const override { return -1; }
  bool arm(bool) override { return true; }
  void cancel_all() override {}
  const transports::MessageCounters& counters() const override { return counters_; }

  size_t through_host = 0;

 private:
  Status start(MessageKey key, const void* data, size_t bytes, Completion& completion) {
    completion.state = Completion::State::pending;
    wire_.send({rank_, key, static_cast<std::byte*>(const_cast<void*>(data)), bytes, &completion});  // NOLINT
    return {};
  }
  Status post(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) {
    completion.state = Completion::State::pending;
    wire_.recv({peer, key, static_cast<std::byte*>(data), bytes, &completion});
    return {};
  }

  Wire& wire_;
  const int rank_;
  const bool is_direct_;
  transports::MessageCounters counters_;
};

inline uint64_t new_seed() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("EPCCL_TEST_SEED")) seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace epccl::runtime
