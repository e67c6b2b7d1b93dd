#include "runtime/bootstrap/wire.hpp"

#include <algorithm>

namespace epccl::runtime::wire {
namespace {

constexpr size_t length_bytes = 4;

uint32_t load_u32(const std::byte* from) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<uint32_t>(from[i]);
  return value;
}

}  // namespace

Writer::Writer(Type type) : bytes_(length_bytes + 1) {
  bytes_[length_bytes] = static_cast<std::byte>(type);
}

Writer& Writer::u8(uint8_t value) {
  bytes_.push_back(static_cast<std::byte>(value));
  return *this;
}

Writer& Writer::u32(uint32_t value) {
  for (int i = 0; i < 4; ++i) u8(static_cast<uint8_t>(value >> (8 * i)));
  return *this;
}

Writer& Writer::u64(uint64_t value) {
  return u32(static_cast<uint32_t>(value)).u32(static_cast<uint32_t>(value >> 32));
}

Writer& Writer::raw(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

Writer& Writer::blob(std::span<const std::byte> bytes) {
  return u32(static_cast<uint32_t>(bytes.size())).raw(bytes);
}

Writer& Writer::text(std::string_view text) {
  return blob(std::as_bytes(std::span(text.substr(0, max_text))));
}

Writer& Writer::ranks(std::span<const int> values) {
  u32(static_cast<uint32_t>(values.size()));
  for (const int value : values) i32(value);
  return *this;
}

std::span<const std::byte> Writer::body() const {
  return std::span(bytes_).subspan(length_bytes + 1);
}

Bytes Writer::take() {
  const auto length = static_cast<uint32_t>(bytes_.size() - length_bytes);
  for (size_t i = 0; i < length_bytes; ++i) bytes_[i] = static_cast<std::byte>(length >> (8 * i));
  return std::move(bytes_);
}

std::span<const std::byte> Reader::take(size_t bytes) {
  if (!good_ || bytes > rest_.size()) {
    good_ = false;
    return {};
  }
  const auto taken = rest_.first(bytes);
  rest_ = rest_.subspan(bytes);
  return taken;
}

uint8_t Reader::u8() {
  const auto bytes = take(1);
  return bytes.empty() ? uint8_t{0} : static_cast<uint8_t>(bytes[0]);
}

uint32_t Reader::u32() {
  const auto bytes = take(4);
  return bytes.empty() ? 0 : load_u32(bytes.data());
}

uint64_t Reader::u64() {
  const uint64_t low = u32();
  return low | (static_cast<uint64_t>(u32()) << 32);
}

Reason Reader::reason() {
  const uint8_t value = u8();
  return value <= static_cast<uint8_t>(Reason::unreachable) ? static_cast<Reason>(value) : Reason::none;
}

void Reader::raw(std::span<std::byte> into) {
  const auto bytes = take(into.size());
  if (bytes.empty()) {
    std::fill(into.begin(), into.end(), std::byte{0});
  } else {
    std::copy(bytes.begin(), bytes.end(), into.begin());
  }
}

std::span<const std::byte> Reader::blob() {
  return take(u32());
}

std::string Reader::text() {
  const auto bytes = blob();
  if (bytes.size() > max_text) {
    good_ = false;
    return {};
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<int> Reader::ranks(size_t most) {
  const uint32_t count = u32();
  good_ = good_ && count <= most && count <= rest_.size() / 4;
  std::vector<int> values;
  for (uint32_t i = 0; good_ && i < count; ++i) values.push_back(i32());
  return values;
}

void Splitter::append(std::span<const std::byte> bytes) {
  // Bytes already handed out go before the buffer would grow over them.
  if (begin_ > 0 && (begin_ == buffer_.size() || begin_ >= (size_t{1} << 16))) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Frame>> Splitter::next(size_t limit) {
  const size_t available = buffer_.size() - begin_;
  if (available < length_bytes) return std::optional<Frame>();
  const size_t length = load_u32(buffer_.data() + begin_);
  if (length == 0 || length > limit)
    return error(Code::remote_error, "a frame of {} bytes, allowed are 1 to {}", length, limit);
  if (available < length_bytes + length) return std::optional<Frame>();
  const auto first = buffer_.begin() + static_cast<std::ptrdiff_t>(begin_ + length_bytes);
  Frame frame{static_cast<Type>(*first), Bytes(first + 1, first + static_cast<std::ptrdiff_t>(length))};
  begin_ += length_bytes + length;
  return std::optional<Frame>(std::move(frame));
}

}  // namespace epccl::runtime::wire
