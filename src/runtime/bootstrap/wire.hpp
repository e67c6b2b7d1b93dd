// Frames of the control line between a rank and the hub.
//
//   | length u32 | type u8 | body ... |      length counts type and body; integers are little-endian
//
// A text or blob in a body is its length (u32) and its bytes. Everything that arrives is checked against its
// limits here, before memory is spent on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace epccl::runtime::wire {

using Bytes = std::vector<std::byte>;

inline constexpr uint32_t protocol_version = 14;
inline constexpr size_t max_frame_of_stranger = 512;           // until a connection has proved itself
inline constexpr size_t max_frame_of_rank = size_t{64} << 20;  // what a rank may send at once
inline constexpr size_t max_gathered = size_t{512} << 20;      // all ranks' blobs of one allgather
inline constexpr size_t max_published = size_t{512} << 20;     // all blobs under all keys
inline constexpr size_t max_text = 4096;                       // keys, host names, sentences
inline constexpr int max_ranks = 1 << 20;

enum class Type : uint8_t {
  // rank to hub
  hello = 1,         // version u32, nonce
  join = 2,          // proof, rank i32, ranks i32, pid i32, host text, session u64, process u64
  gather = 3,        // number u32, kind u8 (GatherKind), blob
  publish = 4,       // key text, blob
  lookup = 5,        // request u32, rank i32, key text
  failure = 6,       // reason u8 (Reason), text
  stall = 7,         // sequence u64, call text, waiting text, count u32, peers i32
  leave = 8,         // u64 number of its last collective
  question = 9,      // request u32
  shrink = 10,       // number u32, count u32, excluded ranks i32
  shrink_over = 11,  // number u32: waited for no more
  end = 12,          // its process ends, and it has not left
  watch = 13,        // wants to know who leaves, and who has left
  // hub to rank
  challenge = 16,  // nonce, proof
  refused = 17,    // text
  joined = 18,     // the hub's process text, count u32, ranks i32 (ascending) that live in it
  gathered = 19,   // number u32, count u32, blobs
  found = 20,      // request u32, success u8, blob (or the reason as bytes)
  notice = 21,     // kind u8, rank i32, reason u8 (Reason), text
  may_close =
      22,  // the hub's process may end from now on, which is no death; count u32, and of each rank that has left as in `left`
  // request u32, joined i32, count u32 of the missing ranks, count u32, the first of those i32, doing text, count u32, i32 those that have
  // died or left
  answer = 23,
  verdict =
      24,  // number u32 of the rank's shrinks, why it cannot be text, count u32, ranks that are kept i32
  hub_left = 25,  // as `left`: others of the hub's process have not
  left = 26,      // to who watches: rank i32, pid i32, host text, u64 number of its last collective
};

enum class GatherKind : uint8_t { allgather = 0, barrier = 1 };

struct Frame {
  Type type{};
  Bytes body;
};

/// Builds one frame.
class Writer {
 public:
  explicit Writer(Type type);

  Writer& u8(uint8_t value);
  Writer& u32(uint32_t value);
  Writer& u64(uint64_t value);
  Writer& i32(int32_t value) { return u32(static_cast<uint32_t>(value)); }
  Writer& ranks(std::span<const int> values);  // count u32, i32
  Writer& reason(Reason value) { return u8(static_cast<uint8_t>(value)); }
  Writer& raw(std::span<const std::byte> bytes);
  Writer& blob(std::span<const std::byte> bytes);
  /// Cut to max_text.
  Writer& text(std::string_view text);

  /// What has been written after the type.
  std::span<const std::byte> body() const;
  /// The whole frame, length included; the writer is empty afterwards.
  Bytes take();

 private:
  Bytes bytes_;
};

/// Reads a body. A read past the end, or past a limit, gives zeros and makes complete() false; so a handler
/// reads all its fields and asks once.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> body) : rest_(body) {}

  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  int32_t i32() { return static_cast<int32_t>(u32()); }
  /// Reason::none where it is none that is known here.
  Reason reason();
  void raw(std::span<std::byte> into);
  std::span<const std::byte> blob();
  std::string text();
  /// At most `most`: more count as a read past the end.
  std::vector<int> ranks(size_t most);

  /// True when every read was inside the body and nothing is left over.
  bool complete() const { return good_ && rest_.empty(); }

 private:
  std::span<const std::byte> take(size_t bytes);

  std::span<const std::byte> rest_;
  bool good_ = true;
};

/// Cuts a stream of received bytes into frames.
class Splitter {
 public:
  void append(std::span<const std::byte> bytes);
  /// The next whole frame, nothing while it is incomplete, or an error when its length is 0 or above `limit`.
  Result<std::optional<Frame>> next(size_t limit);

 private:
  Bytes buffer_;
  size_t begin_ = 0;
};

}  // namespace epccl::runtime::wire
