#include "ep/handle/handle.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "algorithms/ep/choose_strategy.hpp"
#include "base/log.hpp"
#include "ep/routing/source_header.hpp"

namespace epccl::ep {

Status Handle::no_routing() {
  return {Code::invalid_usage, "the handle has no routing yet"};
}

// What is wrong with this rank's own arguments goes into its header: the others learn it from there, and nobody waits. (Entries
// that name no expert are found when the table is taken apart.)
SourceHeader Handle::describe(const TopK& topk) const {
  const GroupOptions& options = group_->options();
  SourceHeader header;
  header.tokens = topk.tokens;
  header.k = topk.k;
  header.layout = static_cast<uint32_t>(rules_.layout);
  header.alignment = rules_.alignment;
  header.capacity = rules_.capacity;
  header.pad = rules_.pad ? 1 : 0;
  header.undefined_padding = rules_.undefined_padding ? 1 : 0;
  header.group = group_->number();
  header.handle = number();
  header.chunk_bytes = network_parameters().chunk_bytes;
  if (topk.tokens > options.max_tokens) {
    header.problem = SourceHeader::too_many_tokens;
    return header;
  }
  if (topk.k > max_topk) {
    header.problem = SourceHeader::k_too_large;
    return header;
  }
  if (static_ && topk.tokens > 0 && topk.k != rules_.max_topk) {
    header.problem = SourceHeader::not_static_k;
    return header;
  }
  return header;
}

std::string Handle::layout_kind() const {
  if (!static_) return "ep layout";
  return fmt::format("ep static layout of {} tokens top-{}", rules_.max_tokens, rules_.max_topk);
}

std::string Handle::layout_text() const {
  return fmt::format("{}, handle {}", layout_kind(), number());
}

algorithms::Parameters Handle::network_parameters() const {
  const runtime::CommConfig& config = communicator().config();
  return on_device_ ? config.engine_parameters() : config.parameters;
}

Status Handle::exchange(SourceHeader header, const TopK& topk) {
  if (header.problem == SourceHeader::none) {
    routing_.read(topk);
    if (const auto wrong = routing_.wrong_entry()) {
      header.problem = SourceHeader::bad_expert;
      header.bad_token = static_cast<uint32_t>(*wrong / topk.k);
      header.bad_k = static_cast<uint32_t>(*wrong % topk.k);
      header.bad_expert_id = topk.at(*wrong);
    }
  }
  if (static_) {
    EPCCL_TRY(static_->gather(header, topk, layout_name()));
    EPCCL_ASSIGN(sources_, static_->layouts());
    return {};
  }
  const BlockLimits limits{group_->options().max_token_bytes + topk.k * sizeof(float), header.chunk_bytes,
                           communicator().config().parameters.scratch_bytes};
  if (header.problem == SourceHeader::none)
    describe_source(group_->cluster(), group_->rank(), routing_, limits, header);
  return exchange_messages(header);
}

Status Handle::exchange_messages(const SourceHeader& header) {
  const auto ranks = static_cast<size_t>(group_->cluster().ranks());
  own_messages_ =
      make_messages(group_->cluster(), group_->rank(), header, routing_, std::move(own_messages_));
  std::vector<uint64_t> bytes(ranks), at(ranks), offsets;
  for (size_t rank = 0; rank < ranks; ++rank) {
    at[rank] = own_messages_.begin[rank] * sizeof(uint32_t);
    bytes[rank] = own_messages_.begin[rank + 1] * sizeof(uint32_t) - at[rank];
  }
  sources_.clear();
  EPCCL_TRY(communicator().alltoallv_unknown(layout_name(), own_messages_.words.data(), bytes, at, messages_,
                                             offsets));
  for (size_t source = 0; source < ranks; ++source) {
    const std::span words(reinterpret_cast<const uint32_t*>(messages_.data() + offsets[source]),
                          (offsets[source + 1] - offsets[source]) / sizeof(uint32_t));
    EPCCL_ASSIGN(SourceLayout layout, read_message(group_->cluster(), group_->experts(),
                                                   {group_->options().max_tokens, group_->number()},
                                                   static_cast<int>(source), group_->rank(), words));
    sources_.push_back(std::move(layout));
  }
  return {};
}

// With which the rows of this source would fit.
uint64_t Handle::scratch_for(int source, Strategy strategy) const {
  const uint32_t k = static_ ? rules_.max_topk : sources_[static_cast<size_t>(source)].header.k;
  return scratch_needed(group_->cluster(), source, strategy,
                        group_->options().max_token_bytes + k * sizeof(float), static_ ? any_k : k);
}

Status Handle::choose() {
  const topology::Cluster& cluster = group_->cluster();
  std::array<std::vector<algorithms::NodeLoad>, 3> loads;
  std::array<uint64_t, 3> lacking{};
  for (auto& of_strategy : loads) of_strategy.resize(static_cast<size_t>(cluster.nodes()));
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const SourceHeader& header = sources_[static_cast<size_t>(rank)].header;
    for (size_t i = 0; i < strategies.size(); ++i) {
      const uint32_t block = header.block_tokens[i];
      if (block == 0) lacking[i] = std::max(lacking[i], scratch_for(rank, strategies[i]));
      auto& load = loads[i][static_cast<size_t>(cluster.node_of(rank))];
      load.rows += header.network_rows[i];
      const uint64_t tokens = static_ ? rules_.max_tokens : header.tokens;
      if (block > 0) load.messages += header.network_streams[i] * ((tokens + block - 1) / block);
    }
  }
  EPCCL_ASSIGN(const algorithms::StrategyChoice choice,
               algorithms::choose_strategy(cluster, loads, lacking, group_->options().max_token_bytes,
                                           communicator().cost(), group_->options().strategy));
  shape_.strategy = choice.strategy;
  shape_.turn_blocks = UINT32_MAX;
  for (const SourceLayout& source : sources_)
    shape_.turn_blocks =
        std::min(shape_.turn_blocks, source.header.turn_blocks[static_cast<size_t>(shape_.strategy)]);
  log::info_once(
      log::coll, group_->rank(),
      "ep layout strategy={}{} layout={} transport=shm{} predicted_us flat={:.1f} gather={:.1f} dedup={:.1f} "
      "rows inside the node by={}",
      algorithms::to_string(shape_.strategy), group_->options().strategy ? " (forced)" : "",
      to_string(rules_.layout), communicator().network_suffix(), choice.seconds[0] * 1e6,
      choice.seconds[1] * 1e6, choice.seconds[2] * 1e6,
      communicator().offloads_rows() ? "engines where they are many" : "cores");
  return {};
}

// With a capacity, which of its entries were dropped only the owners of the experts know: they tell every source how many
// entries came before its own. (In static mode every rank has seen all tables.) The counts, by expert id.
Result<std::vector<uint32_t>> Handle::entries_before() {
  if (static_) return static_->entries_before();
  const topology::Cluster& cluster = group_->cluster();
  const ExpertMap& experts = group_->experts();
  const auto ranks = static_cast<size_t>(cluster.ranks());
  const uint32_t first = experts.first(group_->rank()), count = experts.count(group_->rank());
  std::vector<uint32_t> mine;
  std::vector<uint64_t> at;
  for (int source = 0; source < cluster.ranks(); ++source) {
    at.push_back(mine.size() * sizeof(uint32_t));
    for (uint32_t expert = first; expert < first + count; ++expert)
      mine.push_back(node_slots_->entries_before(source, expert));
  }
  std::vector<std::byte> received;
  std::vector<uint64_t> offsets;
  EPCCL_TRY(communicator().alltoallv_unknown(
      fmt::format("ep dropped entries, handle {}", number()), mine.data(),
      std::vector<uint64_t>(ranks, count * sizeof(uint32_t)), at, received, offsets));
  std::vector<uint32_t> before(experts.experts());
  for (uint32_t expert = 0; expert < experts.experts(); ++expert) {
    const ExpertMap::Place& place = experts.place(expert);
    const uint64_t index = place.node_index - experts.first(place.rank);
    std::memcpy(&before[expert],
                received.data() + offsets[static_cast<size_t>(place.rank)] + index * sizeof(uint32_t),
                sizeof(uint32_t));
  }
  return before;
}

Status Handle::find_dropped(const TopK& topk) {
  dropped_.clear();
  if (rules_.capacity == 0) return {};
  EPCCL_ASSIGN(std::vector<uint32_t> next, entries_before());
  dropped_.assign(size_t{topk.tokens} * topk.k, 0);
  for (size_t i = 0; i < dropped_.size(); ++i)
    if (const int64_t expert = topk.at(i);
        expert >= 0 && next[static_cast<size_t>(expert)]++ >= rules_.capacity)
      dropped_[i] = 1;
  return {};
}

std::vector<Handle::Cut> Handle::cuts() const {
  std::vector<Cut> cuts;
  for (const SourceLayout& source : sources_)
    cuts.push_back({source.header.block_tokens, source.header.turn_blocks});
  return cuts;
}

// A plan of maxima serves all routings whose tokens are cut alike.
Status Handle::make_plans() {
  std::vector<Cut> cuts = this->cuts();
  const bool keep = static_ && cuts == shape_.cuts;
  shape_.cuts = std::move(cuts);
  node_slots_.emplace(group_->cluster(), group_->experts(), group_->cluster().node_of(group_->rank()), rules_,
                      sources_);
  EPCCL_ASSIGN(algorithms::TokenExchange exchange, make_exchange(layout()));
  plans_.use(std::move(exchange), shape_.turn_blocks, network_parameters().send_window, keep);
  return {};
}

// A rank without tokens may not know k: those with tokens do, else those whose tables say so. Where none does it stays.
uint32_t Handle::k_of_routing(const TopK& topk) const {
  if (static_) return rules_.max_topk;
  uint32_t largest = 0;
  for (const SourceLayout& source : sources_) {
    if (source.header.tokens > 0) return source.header.k;
    largest = std::max(largest, source.header.k);
  }
  if (topk.k > 0) return topk.k;
  return largest > 0 ? largest : k_;
}

Status Handle::update(const TopK& topk, bool on_device) {
  take_number();
  on_device_ = on_device;
  Status status = update_as(describe(topk), topk);
  if (!status.ok()) failure_ = status;  // what was known is of the routing before
  return status;
}

Status Handle::update_as(const SourceHeader& header, const TopK& topk) {
  failure_ = {};
  dispatch_row_bytes = combine_row_bytes = 0;
  set_has_weights(false);
  kernel_tables_ = nullptr;
  device_layout_ = nullptr;
  tokens_ = topk.tokens;
  EPCCL_TRY(exchange(header, topk));
  std::vector<SourceHeader> headers;
  for (const SourceLayout& source : sources_) headers.push_back(source.header);
  failure_ = check(headers);
  if (failure_.ok()) failure_ = choose();
  if (!failure_.ok()) return {};
  agreed_ = true;
  k_ = k_of_routing(topk);
  EPCCL_TRY(make_plans());
  return find_dropped(topk);
}

Status Handle::agree() {
  if (agreed_) return {};
  EPCCL_TRY(update({}));
  if (failure_.ok()) failure_ = no_routing();
  return {};
}

// What has been agreed on may have been so for calls of the host, whose messages are shorter.
Status Handle::agree_across() {
  on_device_ = true;
  if (frame_ != nullptr) return {};
  EPCCL_TRY(update({}, true));
  if (!failure_.ok()) return {};
  auto frame = std::make_shared<StreamFrame>();
  frame->exchange = plans_.exchange();
  add_sums(layout(), frame->exchange);
  frame->places = places_of_streams(layout(), frame->exchange);
  frame->exchange.tables = frame->exchange.sums = nullptr;
  frame_ = std::move(frame);
  frame_shape_ = shape_;
  failure_ = no_routing();
  return {};
}

Status Handle::agree_on(const TopK& sizes, const std::string& text, Status& agreed) {
  EPCCL_TRY(agree());
  agreed = agreed_ ? Status{} : failure_;
  if (!agreed.ok()) return {};
  const SourceHeader mine = describe(sizes);
  std::vector<SourceHeader> headers(static_cast<size_t>(group_->cluster().ranks()));
  EPCCL_TRY(communicator().tell_all(&mine, sizeof mine, reinterpret_cast<std::byte*>(headers.data()),
                                    layout_text() + text));
  agreed = check(headers);
  return {};
}

// The other ranks learn of what is wrong with the table from the header, which names no problem.
Status Handle::update_again(const TopK& topk, bool on_device, Status& wrong) {
  take_number();
  on_device_ = on_device;
  SourceHeader header = describe(topk);
  again_.clear();
  for (size_t i = 0; header.problem == SourceHeader::none && i < topk.size(); ++i) {
    const int64_t id = topk.at(i);
    const bool is_good = id >= -1 && id < static_cast<int64_t>(group_->options().experts);
    again_.push_back(is_good ? id : -1);
    if (is_good || header.bad_expert_id != 0) continue;
    header.bad_expert_id = id;
    header.bad_token = static_cast<uint32_t>(i / topk.k);
    header.bad_k = static_cast<uint32_t>(i % topk.k);
  }
  EPCCL_TRY(update_as(header, {again_.data(), true, topk.tokens, topk.k}));
  for (int rank = 0; wrong.ok() && failure_.ok() && rank < group_->cluster().ranks(); ++rank)
    if (const SourceHeader& theirs = sources_[static_cast<size_t>(rank)].header; theirs.bad_expert_id != 0)
      wrong = unused_in_replay(rank, theirs.bad_token, theirs.bad_k, theirs.bad_expert_id,
                               group_->options().experts);
  return {};
}

void Handle::take_layout(std::shared_ptr<DeviceLayout> layout, uint32_t tokens,
                         std::span<const SourceHeader> headers) {
  dispatch_row_bytes = combine_row_bytes = 0;
  set_has_weights(false);
  tokens_ = tokens;
  kernel_tables_ = layout->tables();
  device_layout_ = std::move(layout);
  has_lists_ = false;
  for (size_t source = 0; source < sources_.size(); ++source) sources_[source].header = headers[source];
  failure_ = check(headers);
  if (failure_.ok() && device_layout_->streams() != nullptr) take_streams();
}

void Handle::take_streams() {
  const bool keep = shape_ == frame_shape_;
  shape_ = frame_shape_;
  plans_.use(device_layout_->streams()->exchange(), shape_.turn_blocks, network_parameters().send_window,
             keep);
  use_lists_of_kernels();
}

void Handle::use_lists_of_kernels() {
  plans_.tables_are(device_layout_->streams()->tables(),
                    [layout = device_layout_](const runtime::DeviceProgram& program) {
                      return layout->streams()->hand_outs(program);
                    });
}

Status Handle::need_lists() {
  if (device_layout_ == nullptr || has_lists_ || !failure_.ok()) return {};
  EPCCL_ASSIGN(const std::vector<DeviceLayout::Table> tables, device_layout_->read_tables());
  for (size_t source = 0; source < tables.size(); ++source)
    static_->take(static_cast<int>(source), tables[source].header, tables[source].ids);
  const DeviceLayout::Table& own = tables[static_cast<size_t>(group_->rank())];
  if (own.header.tokens != tokens_)
    return error(
        Code::invalid_usage,
        "the handle's last update has {} tokens, but a graph gave it a routing of {} since then: update "
        "it before calls that the host makes, and before its statistics are asked for",
        tokens_, own.header.tokens);
  const TopK topk{own.ids.data(), true, own.header.tokens, rules_.max_topk};
  routing_.read(topk);
  EPCCL_ASSIGN(sources_, static_->layouts());
  EPCCL_TRY(make_plans());
  // What kernels have made is still there.
  if (device_layout_->streams() != nullptr) use_lists_of_kernels();
  EPCCL_TRY(find_dropped(topk));
  has_lists_ = true;
  return {};
}

Result<KernelTables*> Handle::kernel_tables(const KernelTables::Limits& limits,
                                            const runtime::DeviceRooms::Borrowed& there,
                                            const runtime::DeviceRooms::Borrowed& here) {
  if (kernel_tables_ == nullptr && there == nullptr)
    return Status(
        Code::invalid_usage,
        "the handle was updated from host memory by another thread while this call on a GPU was made");
  if (kernel_tables_ == nullptr) kernel_tables_ = std::make_shared<KernelTables>(limits, there, here);
  return kernel_tables_.get();
}

LayoutView Handle::layout() const {
  return {group_->cluster(), group_->experts(),
          group_->rank(),    shape_.strategy,
          routing_,          *node_slots_,
          sources_,          static_ ? Sizes::from_maxima : Sizes::from_routing};
}

LinkTraffic Handle::traffic() const {
  LinkTraffic traffic;
  const algorithms::TokenExchange& exchange = plans_.exchange();
  if (exchange.tables == nullptr) return traffic;  // no routing yet
  const plan::RowTables& tables = *exchange.tables;
  for (const algorithms::TokenStream& stream : exchange.outgoing)
    traffic.tokens_network += stream.blocks.taken(tables);
  const auto count = [&](const algorithms::TokenStream& stream) {
    for (const algorithms::Delivery& delivery : stream.deliveries)
      (delivery.rank == group_->rank() ? traffic.tokens_local : traffic.tokens_node) +=
          delivery.blocks.taken(tables);
  };
  count(exchange.own);
  for (const algorithms::TokenStream& stream : exchange.incoming) {
    count(stream);
    traffic.returned_network += stream.blocks.taken(tables);
  }
  return traffic;
}

}  // namespace epccl::ep
