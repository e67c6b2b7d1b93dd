// What verbs transports say to each other: addresses, the handshake of a connection, and the headers of messages.
//
//   dialler (first to send)                              acceptor
//     ---- Hello: acceptor's cookie, who, its queue pairs --->     over TCP, once per pair of ranks
//     <--- Answer: welcome and its queue pairs, or declined, or why not
//     ---- Ready -------------------------------------------->     now both may send
//
// When both dial at once, the connection that the lower rank dialled stays. The TCP connection stays open beside the queue
// pairs: its end tells of the other process's end, and the loss of a rail is settled over it.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "base/net.hpp"
#include "base/status.hpp"
#include "transports/peer_address.hpp"
#include "transports/verbs/port.hpp"

namespace epccl::transports::verbs {

using Address = PeerAddress;

/// One end of a queue pair.
struct End {
  uint32_t queue_pair = 0, first_packet = 0;
  std::array<uint8_t, 16> gid{};
  uint16_t lid = 0;
  uint8_t mtu = 0;  // ibv_mtu
  uint8_t ethernet = 0;
  std::array<char, 24> device{};  // for messages
};

struct Ends {
  int32_t count = 0;
  std::array<End, max_rails> rails{};
};

struct Hello {
  static constexpr std::array<char, 8> expected_magic{'E', 'P', 'C', 'C', 'L', 'V', 'B', '1'};
  std::array<char, 8> magic = expected_magic;
  Cookie cookie{};
  int32_t from = -1, to = -1;
  Ends ends;
};

enum class Verdict : int32_t { welcome = 1, declined, refused };

struct Answer {
  Verdict verdict = Verdict::refused;
  Ends ends;
  std::array<char, 160> reason{};  // refused
};

/// What is said over the TCP connection afterwards. A lost rail: each side says how much it has received over it, then the
/// other sends the rest over another. A rail that is back: each side offers a new queue pair, and says when it is connected.
struct Notice {
  enum class Kind : int32_t { ready = 1, rail_lost, rail_offer, rail_ready };
  Kind kind = Kind::ready;
  int32_t rail = 0;
  uint64_t received = 0;  // rail_lost: messages and signals
  End end;                // rail_offer
};

/// In front of every message that is sent into a receive buffer.
struct Header {
  enum class Kind : uint8_t {
    eager = 1,  // the message itself follows
    advert,     // receiver: write `key` there (an Advert follows), at most `bytes`, and signal `id`
    ask,        // sender: has `bytes` for `key`, and no advert
    refused,    // receiver, to an ask: it is too long
    too_long,   // sender, to an advert: has `bytes`
    length,     // sender: what it writes for `id` has `bytes`, less than the advert has
    withdraw,   // receiver: the message for advert `id` came another way
    withdrawn,  // sender: nothing will be written there
    taken,      // receiver: see `taken`
  };
  Kind kind = Kind::eager;
  std::array<uint8_t, 3> unused{};
  uint32_t id = 0;
  uint64_t key = 0, bytes = 0;
  uint64_t taken = 0;  // of the other's eager messages, with headers, so many bytes have met their receives
};

/// Where a receiver's memory is, for each rail.
struct Advert {
  uint64_t address = 0;
  std::array<uint32_t, max_rails> keys{};
};

/// The 32 bits that come with the last write of each part of a message.
struct Signal {
  uint32_t id = 0;       // of the advert
  uint32_t parts = 1;    // signals that the message has
  bool shorter = false;  // a `length` belongs to it

  static constexpr int id_bits = 28;
  uint32_t encode() const { return id | (parts - 1) << id_bits | (shorter ? 1U << 31 : 0U); }
  static Signal decode(uint32_t bits) {
    return {bits & ((1U << id_bits) - 1), (bits >> id_bits & 3) + 1, bits >> 31 != 0};
  }
};
static_assert(max_rails <= 4);

}  // namespace epccl::transports::verbs
