#include "ep/handle/device_token_streams.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/kernels/kernel_queue.hpp"
#include "ep/handle/array_pieces.hpp"
#include "ep/handle/device_plans.hpp"

namespace epccl::ep {

using namespace device::kernels;
using device::CopyWork;
using device::MemoryKind;

Result<std::unique_ptr<DeviceTokenStreams>> DeviceTokenStreams::make(const Group& group,
                                                                     const SlotRules& rules,
                                                                     runtime::DeviceRooms& from) {
  std::unique_ptr<DeviceTokenStreams> made(new DeviceTokenStreams(group, rules));  // private constructor
  const TableSizes most = most_table_bytes(group.cluster(), group.rank(), rules, rules.max_tokens,
                                           rules.max_topk, group.options().strategy);
  made->most_rows_ = most.lists / sizeof(uint32_t);
  EPCCL_ASSIGN(made->there_, from.borrow(made->lay_out(nullptr), MemoryKind::plain));
  made->lay_out(made->there_->data());
  EPCCL_ASSIGN(made->places_, from.borrow(made->places_bytes_));
  EPCCL_ASSIGN(made->counts_, from.borrow(made->most_counts() * sizeof(uint32_t)));
  return made;
}

DeviceTokenStreams::DeviceTokenStreams(const Group& group, const SlotRules& rules)
    : rules_(rules), most_(most_streams(group.cluster(), group.rank(), group.options().strategy)) {
  sources_ = static_cast<uint64_t>(group.cluster().ranks());
  most_handed_ = most_handed_out(group.cluster(), group.rank(), group.options().strategy);
}

uint64_t DeviceTokenStreams::most_counts() const {
  return (most_.sent + most_.received + most_.deliveries) * rules_.max_tokens;
}

// What the host brings comes first.
uint64_t DeviceTokenStreams::lay_out(std::byte* memory) {
  const uint64_t tokens = rules_.max_tokens, entries = tokens * rules_.max_topk;
  const uint64_t sums = most_.received + 1;  // streams: but for its own, which has two
  Pieces pieces(memory);
  pieces.take(parameters_.sent, most_.sent);
  pieces.take(parameters_.received, most_.received);
  pieces.take(parameters_.deliveries, most_.deliveries);
  pieces.take(parameters_.parts, most_.sent + 1);
  pieces.take(relays_, sources_);
  places_bytes_ = pieces.bytes();
  pieces.take(parameters_.counts, most_counts());
  pieces.take(parameters_.rows, most_rows_);
  pieces.take(parameters_.sent_rows, most_.sent * tokens);
  pieces.take(parameters_.terms, sums * entries);
  pieces.take(parameters_.term_counts, sums * tokens);
  pieces.take(relayed_, (most_.received - 1) * entries);
  pieces.take(handed_, most_handed_ * entries);
  return pieces.bytes();
}

template <typename T>
void DeviceTokenStreams::bring(const std::vector<T>& list, const T* there) {
  if (list.empty()) return;
  std::memcpy(places_->data() + (reinterpret_cast<const std::byte*>(there) - there_->data()), list.data(),
              list.size() * sizeof(T));
}

Status DeviceTokenStreams::use(device::Queue& queue, const std::shared_ptr<const StreamFrame>& frame) {
  if (frame_ == frame) return {};
  const TokenStreamPlaces& places = frame->places;
  if (places.sent.size() > most_.sent || places.received.size() > most_.received ||
      places.deliveries.size() > most_.deliveries || places.counts > most_counts() ||
      places.rows > most_rows_ || places.sums > (most_.received + 1) * rules_.max_tokens)
    return error(
        Code::internal_error,
        "{} streams to send, {} to receive, {} lists of places and {} sums: more than there is room for",
        places.sent.size(), places.received.size(), places.rows, places.sums);
  bring(places.sent, parameters_.sent);
  bring(places.received, parameters_.received);
  bring(places.deliveries, parameters_.deliveries);
  bring(places.parts, parameters_.parts);
  bring(places.relays, relays_);
  parameters_.sent_count = static_cast<uint32_t>(places.sent.size());
  parameters_.received_count = static_cast<uint32_t>(places.received.size());
  parameters_.delivery_count = static_cast<uint32_t>(places.deliveries.size());
  parameters_.part_count = static_cast<uint32_t>(places.parts.size());
  parameters_.to_ranks = places.to_ranks ? 1 : 0;
  parameters_.handed = places.to_ranks || most_handed_ == 0 ? nullptr : handed_;
  parameters_.most_blocks = places.most_blocks;
  parameters_.first_final_sum = places.first_final_sum;
  frame_ = frame;
  const CopyWork copy{there_->data(), places_->data(), places_bytes_};
  return queue.copy({&copy, 1});
}

void DeviceTokenStreams::relay_by(LayoutParameters& layout) const {
  layout.relays = relays_;
  layout.relayed = relayed_;
  layout.relays_for_itself = parameters_.to_ranks;
}

Status DeviceTokenStreams::queue_lists(device::Queue& queue, const LayoutParameters& layout,
                                       const TermsParameters& own) const {
  TokenStreamParameters streams = parameters_;
  streams.layout = layout;
  streams.own_terms = own.terms;
  streams.own_counts = own.counts;
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  EPCCL_TRY(queue_kernel(queue, lists_launch(streams, grid)));
  EPCCL_TRY(queue_kernel(queue, final_sums_launch(streams, grid)));
  const CopyWork counts{counts_->data(), reinterpret_cast<const std::byte*>(parameters_.counts),
                        frame_->places.counts * sizeof(uint32_t)};
  return queue.copy({&counts, 1});
}

algorithms::TokenExchange DeviceTokenStreams::exchange() const {
  const auto* const counts = reinterpret_cast<const uint32_t*>(counts_->data());
  auto tables = std::make_shared<plan::RowTables>();
  tables->counts.assign(counts, counts + frame_->places.counts);
  algorithms::TokenExchange exchange = frame_->exchange;
  exchange.tables = exchange.sums = std::move(tables);
  return exchange;
}

runtime::TablesThere DeviceTokenStreams::tables() const {
  return {parameters_.rows, parameters_.terms,  nullptr, parameters_.term_counts,
          rules_.max_topk,  parameters_.handed, {}};
}

std::vector<runtime::HandOutRows> DeviceTokenStreams::hand_outs(const runtime::DeviceProgram& program) const {
  return hand_outs_of(program, frame_->places, rules_);
}

}  // namespace epccl::ep
