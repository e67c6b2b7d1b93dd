// Posted receives, and those of them that the sender was told of: it writes where they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/memory.hpp"
#include "transports/verbs/wire.hpp"

namespace epccl::transports::verbs {

class Conversation;

/// A small message on its way from host memory into a GPU's.
struct Landing {
  std::vector<std::byte> bytes;
  std::unique_ptr<device::QueueEvent> copied;
};

/// A posted receive.
struct Receive {
  Conversation* conversation = nullptr;
  MessageKey key = 0;
  std::byte* data = nullptr;
  size_t capacity = 0;
  Completion* completion = nullptr;
  uint32_t advert = 0;  // its id; 0: none was sent
  std::shared_ptr<const Region> region;
  device::Device* device = nullptr;  // whose memory `data` is; null: the host's
  std::unique_ptr<Landing> landing;
  uint64_t bytes = 0;       // what is to come, or has
  uint32_t parts_seen = 0;  // signals
  Signal signal;            // the last of them
  bool length_known = false;
  bool delivered = false;    // it came without being written there
  bool withdrawing = false;  // and the sender may not know yet that its advert is void
};

/// The receives that peers were told of, by the id that comes back with their signals.
class AdvertTable {
 public:
  uint32_t add(Receive& receive);  // 0: no more
  Receive* find(uint32_t id) const;
  void remove(uint32_t id);

 private:
  // A place's number and how often it was used, so that a late signal finds nothing.
  static constexpr int place_bits = 18;
  static constexpr uint32_t uses_mask = (1U << (Signal::id_bits - place_bits)) - 1;
  struct Place {
    Receive* receive = nullptr;
    uint32_t uses = 1;
  };
  std::vector<Place> places_;
  std::vector<uint32_t> free_;
};

}  // namespace epccl::transports::verbs
