#include "transports/shm/parcel_board.hpp"

namespace epccl::transports {
namespace {

constexpr uint64_t largest_board = 512 << 20;

constexpr uint64_t line = 64;
uint64_t to_line(uint64_t bytes) {
  return (bytes + line - 1) / line * line;
}

uint64_t flags_bytes(int local_size, int nodes) {
  return to_line(static_cast<uint64_t>(local_size) * static_cast<uint64_t>(nodes));
}

/// Slots from one (origin, carrier) to the next: whole lines.
uint64_t slots_in_row(int nodes) {
  return to_line(static_cast<uint64_t>(nodes) * sizeof(ParcelSlot)) / sizeof(ParcelSlot);
}

}  // namespace

//   trial | doors | inboxes | lane flags [carrier][node] | slots [origin][carrier][node] | parcels [origin][carrier][node]
ParcelBoard::ParcelBoard(std::byte* base, int local_size, int nodes, int local)
    : local_size_(local_size), nodes_(nodes), local_(local) {
  const auto ranks = static_cast<uint64_t>(local_size);
  trial_ = reinterpret_cast<std::atomic<double>*>(base);
  doors_ = reinterpret_cast<Door*>(base + line);
  inboxes_ = reinterpret_cast<Inbox*>(base + line + ranks * sizeof(Door));
  std::byte* const flags = base + line + ranks * (sizeof(Door) + sizeof(Inbox));
  lane_flags_ = reinterpret_cast<std::atomic<bool>*>(flags);
  slots_ = reinterpret_cast<ParcelSlot*>(flags + flags_bytes(local_size, nodes));
  payloads_ = reinterpret_cast<std::byte*>(slots_ + ranks * ranks * slots_in_row(nodes));
}

uint64_t ParcelBoard::bytes(int local_size, int nodes) {
  const auto ranks = static_cast<uint64_t>(local_size);
  const uint64_t all =
      line + ranks * (sizeof(Door) + sizeof(Inbox)) + flags_bytes(local_size, nodes) +
      ranks * ranks *
          (slots_in_row(nodes) * sizeof(ParcelSlot) + static_cast<uint64_t>(nodes) * ParcelSlot::capacity);
  return all > largest_board ? 0 : all;
}

ParcelSlot& ParcelBoard::slot(int origin, int carrier, int node) const {
  return slots_[row(origin, carrier) * slots_in_row(nodes_) + static_cast<size_t>(node)];
}

std::byte* ParcelBoard::payload(int origin, int carrier, int node) const {
  const size_t place = row(origin, carrier) * static_cast<size_t>(nodes_) + static_cast<size_t>(node);
  return payloads_ + place * ParcelSlot::capacity;
}

void ParcelBoard::lay_out(int carrier, int node) {
  put_down(slot(local_, carrier, node), ParcelSlot::offered);
  const auto word = static_cast<size_t>(local_) / 64;
  inboxes_[carrier].origins[word].fetch_or(uint64_t{1} << (local_ % 64), std::memory_order_release);
}

LocalMask ParcelBoard::collect() {
  LocalMask mask{};
  for (size_t word = 0; word < mask.size(); ++word) {
    std::atomic<uint64_t>& origins = inboxes_[local_].origins[word];
    if (origins.load(std::memory_order_relaxed) != 0)
      mask[word] = origins.exchange(0, std::memory_order_acquire);
  }
  return mask;
}

}  // namespace epccl::transports
