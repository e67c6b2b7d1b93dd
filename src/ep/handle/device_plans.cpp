#include "ep/handle/device_plans.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ep/handle/array_pieces.hpp"

namespace epccl::ep {
namespace {

using device::kernels::Target;
using device::kernels::Term;
using plan::RowTerm;

// Kernels read the host's terms as they are.
static_assert(sizeof(Term) == sizeof(RowTerm) && std::is_trivially_copyable_v<RowTerm>);
static_assert(offsetof(Term, row) == offsetof(RowTerm, row) &&
              offsetof(Term, source) == offsetof(RowTerm, source) &&
              offsetof(Term, weight) == offsetof(RowTerm, weight) &&
              offsetof(Term, ends) == offsetof(RowTerm, ends));
static_assert(Term::unweighted == RowTerm::unweighted && int{Term::rank_sum} == int{RowTerm::rank_sum} &&
              int{Term::node_sum} == int{RowTerm::node_sum});

}  // namespace

uint64_t table_bytes(const plan::RowTables& tables, uint64_t targets) {
  return whole_arrays(targets * sizeof(Target)) + whole_arrays(tables.rows.size() * sizeof(uint32_t)) +
         whole_arrays(tables.terms.size() * sizeof(Term)) +
         whole_arrays(tables.sum_begin.size() * sizeof(uint32_t));
}

TableSizes most_table_bytes(const topology::Cluster& cluster, int rank, const SlotRules& rules,
                            uint64_t tokens, uint64_t k, std::optional<Strategy> forced) {
  const bool fixed = rules.max_topk > 0, by_expert = rules.layout == SlotLayout::expert_major;
  const auto here = static_cast<uint64_t>(cluster.local_size(cluster.node_of(rank)));
  const uint64_t elsewhere = static_cast<uint64_t>(cluster.ranks()) - here;
  const auto other_nodes = static_cast<uint64_t>(cluster.nodes()) - 1;
  // Of one stream that is handed to as many ranks: which of its rows, and where they go. Without fixed places there are as many as
  // there are entries.
  const auto delivered = [&](uint64_t ranks) {
    const uint64_t places = by_expert ? k * (fixed ? ranks : 1) : fixed ? ranks : std::min(ranks, k);
    return 2 * tokens * places;
  };
  const uint64_t relayed = sources_of_relay(cluster, rank);
  uint64_t rows = 0, streams = 0, targets = 0;
  if (!forced || *forced != Strategy::flat) {
    rows = other_nodes * tokens + relayed * delivered(here);
    streams = relayed;
    // As many of each row as it has places.
    if (here > 1) targets = relayed * tokens * (by_expert ? k : std::min(here, k));
  }
  if (!forced || *forced == Strategy::flat) {
    rows = std::max(rows, elsewhere * (tokens + delivered(1)));
    streams = std::max(streams, elsewhere);
  }
  // Sums: of each stream, of the own tokens inside the node, and of all that comes back. Each has a term for an entry at most.
  const uint64_t sums = (streams + 2) * tokens;
  return {whole_arrays((rows + delivered(here)) * sizeof(uint32_t)), whole_arrays(targets * sizeof(Target)),
          whole_arrays(sums * k * sizeof(Term)) + whole_arrays((sums + 1) * sizeof(uint32_t))};
}

// The first rank of a node relays for as many sources as any other there.
Status check_table_sizes(const topology::Cluster& cluster, const SlotRules& rules,
                         std::optional<Strategy> forced) {
  for (int node = 0; node < cluster.nodes(); ++node) {
    const TableSizes most =
        most_table_bytes(cluster, cluster.rank_at(node, 0), rules, rules.max_tokens, rules.max_topk, forced);
    if (const uint64_t places = std::max(most.lists / sizeof(uint32_t), most.combine / sizeof(Term));
        places > UINT32_MAX)
      return error(
          Code::invalid_argument,
          "static_topk {} with max_send_tokens_per_rank {} on {} ranks: tables of a rank have up to {} "
          "places, of which {} can be numbered",
          rules.max_topk, rules.max_tokens, cluster.ranks(), places, UINT32_MAX);
  }
  return {};
}

void DevicePlans::forget(bool keep_plans) {
  if (!keep_plans) programs_.clear();
  of_dispatch_ = of_combine_ = {};
  made_.reset();
}

Result<DevicePlans::Ready> DevicePlans::prepare(const Key& key,
                                                const std::shared_ptr<const plan::RowTables>& tables,
                                                const TablesRoom& room, runtime::KernelCalls& kernels,
                                                const Build& build) {
  auto known = programs_.find(key);
  if (known == programs_.end()) {
    EPCCL_ASSIGN(runtime::DeviceProgram made, kernels.make_program(build()));
    known = programs_.emplace(key, std::move(made)).first;
  }
  EPCCL_TRY(kernels.use_tables(known->second, tables));
  if (made_) {
    Ready ready{&known->second, made_->there};
    if (key.combine) return ready;
    if (of_dispatch_.tables != tables)
      of_dispatch_ = {
          .tables = tables, .room = {}, .there = {}, .hand_outs = made_->hand_outs(known->second)};
    ready.tables.hand_outs = of_dispatch_.hand_outs;
    return ready;
  }
  Uploaded& uploaded = key.combine ? of_combine_ : of_dispatch_;
  if (uploaded.tables != tables) {
    if (room.there == nullptr || room.here == nullptr)
      return Status(Code::invalid_usage, "the handle was updated on the host after this call had been made");
    EPCCL_ASSIGN(uploaded, upload(known->second, tables, room, kernels));
  }
  Ready ready{&known->second, uploaded.there};
  ready.tables.hand_outs = uploaded.hand_outs;
  return ready;
}

// Programs of all lengths of rows hand out the same.
Result<DevicePlans::Uploaded> DevicePlans::upload(const runtime::DeviceProgram& program,
                                                  const std::shared_ptr<const plan::RowTables>& tables,
                                                  const TablesRoom& room, runtime::KernelCalls& kernels) {
  runtime::HandOutTable handed = kernels.hand_out_table(program);
  const uint64_t total = table_bytes(*tables, handed.targets.size());
  if (const uint64_t most = std::min(room.there->bytes(), room.here->bytes()); total > most)
    return error(Code::internal_error,
                 "tables of {} rows, {} terms and {} targets take {} bytes, but have room for {}",
                 tables->rows.size(), tables->terms.size(), handed.targets.size(), total, most);
  Uploaded made{tables, room, {}, std::move(handed.hand_outs)};
  uint64_t at = 0;
  std::vector<device::CopyWork> copies;
  const auto place = [&](const auto& list, auto*& there) {
    const uint64_t bytes = list.size() * sizeof(list[0]);
    there = reinterpret_cast<std::remove_reference_t<decltype(there)>>(room.there->data() + at);
    if (bytes == 0) return;
    std::memcpy(room.here->data() + at, list.data(), bytes);
    copies.push_back({room.there->data() + at, room.here->data() + at, bytes});
    at += whole_arrays(bytes);
  };
  place(tables->rows, made.there.rows);
  place(tables->terms, made.there.terms);
  place(tables->sum_begin, made.there.sum_begin);
  place(handed.targets, made.there.targets);
  if (!copies.empty()) EPCCL_TRY(kernels.copy(copies));
  return made;
}

}  // namespace epccl::ep
