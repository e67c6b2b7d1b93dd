#include "ep/handle/device_layout.hpp"

#include <algorithm>
#include <cstring>

#include "algorithms/tables/table_exchange.hpp"
#include "device/kernels/kernel_queue.hpp"
#include "ep/handle/array_pieces.hpp"

namespace epccl::ep {

using namespace device::kernels;
using device::CopyWork;
using device::MemoryKind;
using runtime::PeerRows;

namespace {

uint64_t table_room(const SlotRules& rules) {
  return whole_arrays(uint64_t{rules.max_tokens} * rules.max_topk * sizeof(int64_t));
}

LayoutShape shape_of(const Group& group, const SlotRules& rules) {
  const auto ranks = static_cast<uint32_t>(group.cluster().ranks());
  return {ranks,          rules.max_tokens,
          rules.max_topk, group.experts().experts(),
          ranks,          static_cast<uint32_t>(group.cluster().nodes())};
}

/// Rows that a rank receives, whatever the routing is.
uint64_t rows_of(const Group& group, const SlotRules& rules) {
  if (rules.layout == SlotLayout::rank_major)
    return uint64_t{rules.max_tokens} * static_cast<uint64_t>(group.cluster().ranks());
  const uint64_t alignment = std::max(rules.alignment, 1U);
  return (rules.capacity + alignment - 1) / alignment * alignment * group.experts().count(group.rank());
}

uint64_t place_numbers(LayoutParameters& parameters, std::byte* memory) {
  const LayoutShape& shape = parameters.shape;
  Pieces pieces(memory);
  pieces.take(parameters.counts, shape.count_words());
  pieces.take(parameters.totals, shape.total_words());
  pieces.take(parameters.wrong, shape.sources);
  pieces.take(parameters.before, uint64_t{shape.sources} * shape.experts);
  pieces.take(parameters.first_row, uint64_t{shape.sources} * shape.ranks);
  pieces.take(parameters.entries, shape.experts);
  pieces.take(parameters.zone_begin, shape.experts);
  pieces.take(parameters.zone_rows, shape.experts);
  pieces.take(parameters.rows, shape.ranks);
  pieces.take(parameters.experts, shape.experts);
  pieces.take(parameters.ranks, shape.ranks);
  pieces.take(parameters.record_of, shape.sources);
  return pieces.bytes();
}

Status queue_copies(device::Queue& queue, std::span<const SmallCopy> copies) {
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  for (size_t first = 0; first < copies.size(); first += max_small_copies)
    EPCCL_TRY(queue_kernel(
        queue, copies_launch(copies.subspan(first, std::min<size_t>(max_small_copies, copies.size() - first)),
                             {}, nullptr, grid)));
  return {};
}

}  // namespace

DeviceLayout::DeviceLayout(const Group& group, const SlotRules& rules, runtime::StagedCalls& from)
    : group_(group), rules_(rules), from_(from), record_bytes_(sizeof(Head) + table_room(rules)) {
  parameters_.shape = shape_of(group, rules);
  parameters_.rules = {rules.layout == SlotLayout::expert_major, rules.layout == SlotLayout::rank_major,
                       std::max(rules.alignment, 1U), rules.capacity, rules.pad};
  parameters_.rank = static_cast<uint32_t>(group.rank());
  parameters_.record_bytes = record_bytes_;
  parameters_.tokens_at = offsetof(Head, tokens);
  parameters_.wide_at = offsetof(Head, wide);
  parameters_.table_at = sizeof(Head);
  number_places();
}

// Experts of all nodes are counted, node by node; rows can be written to the ranks of this one.
void DeviceLayout::number_places() {
  const topology::Cluster& cluster = group_.cluster();
  const ExpertMap& experts = group_.experts();
  std::vector<uint32_t> node_begin{0};
  for (int node = 0; node < cluster.nodes(); ++node)
    node_begin.push_back(node_begin.back() + experts.node_size(node));
  for (uint32_t expert = 0; expert < experts.experts(); ++expert) {
    const ExpertMap::Place& place = experts.place(expert);
    experts_.push_back({node_begin[static_cast<size_t>(place.node)] + place.node_index,
                        static_cast<uint32_t>(place.rank), static_cast<uint32_t>(place.node)});
  }
  const int own = cluster.node_of(group_.rank());
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const int node = cluster.node_of(rank);
    ranks_.push_back({node_begin[static_cast<size_t>(node)] + experts.first(rank), experts.count(rank),
                      node == own ? static_cast<uint32_t>(cluster.local_of(rank)) : no_row});
    record_of_.push_back(static_cast<uint32_t>(algorithms::table_offset(cluster, rank, 1)));
  }
}

Result<std::unique_ptr<DeviceLayout>> DeviceLayout::make(const Group& group, const SlotRules& rules,
                                                         runtime::StagedCalls& from) {
  const uint64_t rows = rows_of(group, rules), k = rules.max_topk;
  if (std::max<uint64_t>(rows, rules.max_tokens) * k >= no_row)
    return error(Code::invalid_argument, "{} rows, top-{}: kernels can number {} entries", rows, k, no_row);
  std::unique_ptr<DeviceLayout> made(new DeviceLayout(group, rules, from));  // private constructor
  EPCCL_TRY(made->borrow());
  const bool across = group.cluster().nodes() > 1;
  if (across) {
    EPCCL_ASSIGN(made->streams_, DeviceTokenStreams::make(group, rules, from.rooms()));
    EPCCL_ASSIGN(made->own_, from.rooms().borrow(made->record_bytes_, MemoryKind::plain));
  }
  const KernelTables::Limits limits{rules.max_tokens, k, rows, across ? rows * k : 0};
  EPCCL_ASSIGN(runtime::DeviceRooms::Borrowed there,
               from.rooms().borrow(KernelTables::bytes(limits), MemoryKind::plain));
  made->tables_ = std::make_shared<KernelTables>(limits, std::move(there));
  made->tables_->make_by(made->parameters_, made->terms_);
  return made;
}

Status DeviceLayout::borrow() {
  EPCCL_ASSIGN(records_, from_.rooms().borrow(records_bytes(), MemoryKind::shareable));
  parameters_.records = records_->data();
  EPCCL_ASSIGN(numbers_, from_.rooms().borrow(place_numbers(parameters_, nullptr), MemoryKind::plain));
  place_numbers(parameters_, numbers_->data());
  EPCCL_ASSIGN(head_, from_.rooms().borrow(sizeof(Head)));
  EPCCL_ASSIGN(told_, from_.rooms().borrow(entry_at() + sizeof(int64_t)));
  const Places at = places();
  EPCCL_ASSIGN(places_, from_.rooms().borrow(at.bytes));
  std::memcpy(places_->data(), experts_.data(), experts_.size() * sizeof(ExpertPlace));
  std::memcpy(places_->data() + at.ranks, ranks_.data(), ranks_.size() * sizeof(RankPlace));
  std::memcpy(places_->data() + at.records, record_of_.data(), record_of_.size() * sizeof(uint32_t));
  return {};
}

DeviceLayout::Places DeviceLayout::places() const {
  Places at;
  at.ranks = whole_arrays(experts_.size() * sizeof(ExpertPlace));
  at.records = at.ranks + whole_arrays(ranks_.size() * sizeof(RankPlace));
  at.bytes = at.records + record_of_.size() * sizeof(uint32_t);
  return at;
}

// Once: they do not follow the routing.
Status DeviceLayout::upload_places(device::Queue& queue) {
  if (has_places_) return {};
  const auto there = [](const void* place) {
    return static_cast<std::byte*>(const_cast<void*>(place));  // NOLINT: kernels only read it
  };
  const Places at = places();
  const std::array copies{
      CopyWork{there(parameters_.experts), places_->data(), experts_.size() * sizeof(ExpertPlace)},
      CopyWork{there(parameters_.ranks), places_->data() + at.ranks, ranks_.size() * sizeof(RankPlace)},
      CopyWork{there(parameters_.record_of), places_->data() + at.records,
               record_of_.size() * sizeof(uint32_t)}};
  EPCCL_TRY(queue.copy(copies));
  has_places_ = true;
  return {};
}

Status DeviceLayout::send(device::Queue& queue, std::span<const PeerRows> peers, const SourceHeader& header,
                          const RoutingOnDevice& routing) {
  EPCCL_TRY(upload_places(queue));
  const Head head = head_of(header, routing);
  std::memcpy(head_->data(), &head, sizeof head);
  return send_again(queue, peers, head_->data(), routing);
}

DeviceLayout::Head DeviceLayout::head_of(const SourceHeader& header, const RoutingOnDevice& routing) const {
  Head head;
  head.tokens = header.problem == SourceHeader::none ? routing.tokens : 0;
  head.wide = routing.wide ? 1 : 0;
  head.header = header;
  return head;
}

Result<runtime::DeviceRooms::Borrowed> DeviceLayout::make_head(const SourceHeader& header,
                                                               const RoutingOnDevice& routing) {
  EPCCL_ASSIGN(runtime::DeviceRooms::Borrowed pinned, from_.rooms().borrow(sizeof(Head)));
  const Head head = head_of(header, routing);
  std::memcpy(pinned->data(), &head, sizeof head);
  return pinned;
}

Status DeviceLayout::send_again(device::Queue& queue, std::span<const PeerRows> peers, const std::byte* head,
                                const RoutingOnDevice& routing) {
  const uint64_t at = record_bytes_ * parameters_.rank;
  std::vector<SmallCopy> copies;
  for (const PeerRows& peer : peers)
    for (const SmallCopy& copy : record_copies(head, routing, peer.outputs[0] + at)) copies.push_back(copy);
  return queue_copies(queue, copies);
}

std::vector<SmallCopy> DeviceLayout::record_copies(const std::byte* head, const RoutingOnDevice& routing,
                                                   std::byte* record) {
  uint32_t tokens = 0;
  std::memcpy(&tokens, head + offsetof(Head, tokens), sizeof tokens);
  const uint64_t bytes = uint64_t{tokens} * routing.k * (routing.wide ? sizeof(int64_t) : sizeof(int32_t));
  std::vector<SmallCopy> copies{{head, record, sizeof(Head)}};
  if (bytes > 0) copies.push_back({routing.table, record + sizeof(Head), bytes});
  return copies;
}

Status DeviceLayout::write_own(device::Queue& queue, const SourceHeader& header,
                               const RoutingOnDevice& routing) {
  EPCCL_TRY(upload_places(queue));
  const Head head = head_of(header, routing);
  std::memcpy(head_->data(), &head, sizeof head);
  return queue_copies(queue, record_copies(head_->data(), routing, own_->data()));
}

Status DeviceLayout::make(device::Queue& queue, const RoutingOnDevice& routing,
                          const std::shared_ptr<const StreamFrame>& frame) {
  if (streams_ != nullptr) EPCCL_TRY(streams_->use(queue, frame));
  EPCCL_TRY(queue_layout(queue, routing, nullptr));
  is_made_ = true;
  const auto sources = static_cast<uint32_t>(ranks_.size());
  CopyWork heads{told_->data(), parameters_.records, sizeof(Head), sources, sizeof(Head), record_bytes_};
  CopyWork wrong{told_->data() + sources * sizeof(Head),
                 reinterpret_cast<const std::byte*>(parameters_.wrong), sources * sizeof(uint32_t)};
  const std::array copies{heads, wrong};
  return queue.copy(copies);
}

Status DeviceLayout::make_again(device::Queue& queue, const RoutingOnDevice& routing,
                                WrongEntry* wrong_entries) {
  return queue_layout(queue, routing, wrong_entries);
}

Status DeviceLayout::make_sure(runtime::KernelCalls& kernels) {
  if (is_made_) return {};
  const auto sources = static_cast<uint32_t>(ranks_.size());
  std::memset(told_->data(), 0, sources * sizeof(Head));
  const CopyWork nothing{records_->data(), told_->data(), sizeof(Head), sources, record_bytes_, sizeof(Head)};
  const auto make_of_nothing = [&](device::Queue& queue) -> Status {
    EPCCL_TRY(upload_places(queue));
    EPCCL_TRY(queue.copy({&nothing, 1}));
    return queue_layout(queue, {}, nullptr);
  };
  EPCCL_TRY(kernels.run_alone(make_of_nothing));
  is_made_ = true;
  return {};
}

Status DeviceLayout::queue_layout(device::Queue& queue, const RoutingOnDevice& routing,
                                  WrongEntry* wrong_entries) {
  EPCCL_ASSIGN(const Grid grid, grid_of(queue));
  LayoutParameters layout = parameters_;
  layout.dropped = routing.dropped;
  if (streams_ != nullptr) streams_->relay_by(layout);
  for (const auto& launch : layout_launches(layout, grid)) EPCCL_TRY(queue_kernel(queue, launch));
  TermsParameters terms = terms_;
  terms.rows = {tokens_there(), rules_.max_tokens};
  terms.width = layout.shape.k;
  terms.by_expert = layout.rules.by_expert;
  EPCCL_TRY(queue_kernel(queue, terms_launch(terms, grid)));
  if (streams_ != nullptr) EPCCL_TRY(streams_->queue_lists(queue, layout, terms));
  CountersParameters counters = routing.counters;
  counters.shape = layout.shape;
  counters.rank = layout.rank;
  counters.first_expert = ranks_[layout.rank].first;
  counters.expert_count = ranks_[layout.rank].count;
  counters.capacity = layout.rules.capacity;
  counters.totals = layout.totals;
  counters.entries = layout.entries;
  counters.zone_begin = layout.zone_begin;
  counters.rows = layout.rows;
  counters.wrong_entries = wrong_entries;
  counters.wrong = layout.wrong;
  counters.records = layout.records;
  counters.record_bytes = record_bytes_;
  counters.table_at = layout.table_at;
  counters.wide_at = layout.wide_at;
  return queue_kernel(queue, counters_launch(counters, grid));
}

Result<std::vector<SourceHeader>> DeviceLayout::headers() {
  std::vector<SourceHeader> headers;
  const std::byte* const wrong = told_->data() + ranks_.size() * sizeof(Head);
  for (size_t source = 0; source < ranks_.size(); ++source) {
    Head head;
    std::memcpy(static_cast<void*>(&head), told_->data() + record_of_[source] * sizeof(Head), sizeof head);
    uint32_t at = no_row;
    std::memcpy(&at, wrong + source * sizeof at, sizeof at);
    SourceHeader& header = head.header;
    const bool good = header.problem == SourceHeader::none;
    if (good && (head.tokens > rules_.max_tokens || head.tokens != header.tokens))
      return error(Code::remote_error,
                   "the routing table of rank {} is damaged: it has {} tokens, and says {}; at most {} are "
                   "allowed",
                   source, head.tokens, header.tokens, rules_.max_tokens);
    if (good && at != no_row) {
      header.problem = SourceHeader::bad_expert;
      header.bad_token = at / rules_.max_topk;
      header.bad_k = at % rules_.max_topk;
      EPCCL_ASSIGN(header.bad_expert_id, entry(static_cast<int>(source), at, head.wide != 0));
    }
    headers.push_back(header);
  }
  return headers;
}

Result<int64_t> DeviceLayout::entry(int source, uint32_t at, bool wide) {
  const uint64_t size = wide ? sizeof(int64_t) : sizeof(int32_t);
  std::byte* const from =
      records() + record_bytes_ * record_of_[static_cast<size_t>(source)] + sizeof(Head) + at * size;
  std::byte* const told = told_->data() + entry_at();
  EPCCL_TRY(from_.copy_pieces_in({{from, 0, size}}, told));
  if (wide) return *reinterpret_cast<const int64_t*>(told);
  return int64_t{*reinterpret_cast<const int32_t*>(told)};
}

uint64_t DeviceLayout::entry_at() const {
  return whole_arrays(ranks_.size() * (sizeof(Head) + sizeof(uint32_t)));
}

Status DeviceLayout::prepare_reading() {
  const std::lock_guard lock(reading_mutex_);
  if (read_ == nullptr) {
    EPCCL_ASSIGN(read_, from_.rooms().borrow(records_bytes()));
  }
  return {};
}

Result<std::vector<DeviceLayout::Table>> DeviceLayout::read_tables() {
  EPCCL_TRY(prepare_reading());
  EPCCL_TRY(from_.copy_pieces_in({{records(), 0, records_bytes()}}, read_->data()));
  std::vector<Table> tables(ranks_.size());
  for (size_t source = 0; source < tables.size(); ++source) {
    const std::byte* const record = read_->data() + record_of_[source] * record_bytes_;
    Head head;
    std::memcpy(static_cast<void*>(&head), record, sizeof head);
    tables[source].header = head.header;
    const TopK ids{record + sizeof(Head), head.wide != 0, std::min(head.tokens, rules_.max_tokens),
                   rules_.max_topk};
    for (size_t i = 0; i < ids.size(); ++i) tables[source].ids.push_back(ids.at(i));
  }
  return tables;
}

}  // namespace epccl::ep
