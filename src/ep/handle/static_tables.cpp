#include "ep/handle/static_tables.hpp"

#include <algorithm>
#include <cstring>

#include "algorithms/tables/table_exchange.hpp"
#include "ep/routing/source_header.hpp"

namespace epccl::ep {

StaticTables::StaticTables(const Group& group, const SlotRules& rules)
    : group_(group),
      rules_(rules),
      node_(group.cluster().node_of(group.rank())),
      own_(record_bytes()),
      sources_(static_cast<size_t>(group.cluster().ranks())) {
  const topology::Cluster& cluster = group.cluster();
  const uint64_t chunk = group.communicator().config().parameters.chunk_bytes;
  plan_ = runtime::compile(algorithms::build_table_exchange(cluster, group.rank(), record_bytes(), chunk),
                           cluster);
  for (Source& source : sources_) {
    source.of_local.resize(static_cast<size_t>(cluster.local_size(node_)));
    source.rank_tokens.resize(source.of_local.size());
  }
}

const std::byte* StaticTables::record(int source) const {
  return all_.as<const std::byte>() + algorithms::table_offset(group_.cluster(), source, record_bytes());
}

SourceHeader StaticTables::header(int source) const {
  SourceHeader header;
  std::memcpy(static_cast<void*>(&header), record(source), sizeof header);
  return header;
}

Status StaticTables::gather(const SourceHeader& header, const TopK& topk, const runtime::CallName& name) {
  EPCCL_TRY(all_.reserve(record_bytes() * static_cast<uint64_t>(group_.cluster().ranks())));
  std::memcpy(own_.data(), &header, sizeof header);
  if (header.problem == SourceHeader::none) {
    auto* table = reinterpret_cast<int32_t*>(own_.data() + sizeof header);
    for (size_t i = 0; i < size_t{topk.tokens} * topk.k; ++i) table[i] = static_cast<int32_t>(topk.at(i));
  }
  return group_.communicator().run_plan(plan_, own_.data(), all_.as<void>(), name);
}

void StaticTables::take(int source, const SourceHeader& header, std::span<const int64_t> ids) {
  std::byte* const to =
      all_.as<std::byte>() + algorithms::table_offset(group_.cluster(), source, record_bytes());
  std::memcpy(to, &header, sizeof header);
  auto* table = reinterpret_cast<int32_t*>(to + sizeof header);
  for (size_t i = 0; i < ids.size(); ++i) table[i] = static_cast<int32_t>(ids[i]);
}

Status StaticTables::check(int rank, const SourceHeader& header) const {
  const auto broken = [rank](const char* what) {
    return error(Code::remote_error, "the routing table of rank {} is damaged: {}", rank, what);
  };
  if (header.problem != SourceHeader::none || header.group != group_.number()) return {};
  if (header.chunk_bytes == 0) return broken("its messages have no length");
  if (header.tokens > rules_.max_tokens) return broken("it has too many tokens");
  if (header.tokens > 0 && header.k != rules_.max_topk)
    return broken("it has another number of entries a token");
  const auto experts = static_cast<int32_t>(group_.experts().experts());
  int32_t wrong = 0;
  for (size_t i = 0; i < size_t{header.tokens} * header.k; ++i)
    wrong += table(rank)[i] < -1 || table(rank)[i] >= experts ? 1 : 0;
  return wrong == 0 ? Status() : broken("entries name no expert");
}

// Entries of other nodes' experts are passed over.
void StaticTables::sort(int rank, const SourceHeader& header, bool relayed, Source& source) const {
  const ExpertMap& experts = group_.experts();
  const topology::Cluster& cluster = group_.cluster();
  for (Lists& lists : source.of_local) {
    lists.tokens.clear();
    lists.entries.clear();
  }
  source.node_tokens.clear();
  std::ranges::fill(source.rank_tokens, 0);
  source.expert_entries.assign(experts.node_size(node_), 0);
  std::vector<uint32_t> last(source.of_local.size());  // token + 1, by local position
  const int32_t* next = table(rank);
  for (uint32_t token = 0; token < header.tokens; ++token) {
    bool on_node = false;
    for (uint32_t position = 0; position < header.k; ++position) {
      const int32_t id = *next++;
      if (id < 0) continue;
      const ExpertMap::Place& place = experts.place(static_cast<uint32_t>(id));
      if (place.node != node_) continue;
      on_node = true;
      ++source.expert_entries[place.node_index];
      const auto local = static_cast<size_t>(cluster.local_of(place.rank));
      const bool first = last[local] != token + 1;
      last[local] = token + 1;
      source.rank_tokens[local] += first ? 1 : 0;
      if (!relayed && place.rank != group_.rank()) continue;
      Lists& lists = source.of_local[local];
      if (first) lists.tokens.push_back(token);
      lists.entries.push_back(Entry::of(place.node_index - experts.first(place.rank), position, first).word);
    }
    if (on_node && relayed) source.node_tokens.push_back(token);
  }
}

void StaticTables::add_maxima(int rank, SourceHeader& header) {
  SourceHeader& known = sources_[static_cast<size_t>(rank)].maxima;
  if (known.chunk_bytes != header.chunk_bytes) {
    const uint64_t row_bytes = group_.options().max_token_bytes + rules_.max_topk * sizeof(float);
    const uint64_t scratch = group_.communicator().config().parameters.scratch_bytes;
    known.chunk_bytes = header.chunk_bytes;
    describe_maxima(group_.cluster(), group_.experts(), rank, rules_.max_tokens, rules_.max_topk,
                    {row_bytes, header.chunk_bytes, scratch}, known);
  }
  header.block_tokens = known.block_tokens;
  header.turn_blocks = known.turn_blocks;
  header.network_rows = known.network_rows;
  header.network_streams = known.network_streams;
}

Result<std::vector<SourceLayout>> StaticTables::layouts() {
  const topology::Cluster& cluster = group_.cluster();
  std::vector<SourceLayout> layouts(sources_.size());
  bool good = true;
  for (size_t rank = 0; rank < layouts.size(); ++rank) {
    layouts[rank].header = header(static_cast<int>(rank));
    EPCCL_TRY(check(static_cast<int>(rank), layouts[rank].header));
    good = good && layouts[rank].header.problem == SourceHeader::none &&
           layouts[rank].header.group == group_.number();
  }
  for (size_t rank = 0; good && rank < layouts.size(); ++rank) {
    SourceLayout& layout = layouts[rank];
    Source& source = sources_[rank];
    layout.relayed = relay_of(cluster, static_cast<int>(rank), node_) == group_.rank();
    sort(static_cast<int>(rank), layout.header, layout.relayed, source);
    layout.rank_tokens = source.rank_tokens;
    layout.expert_entries = source.expert_entries;
    layout.node_tokens = source.node_tokens;
    for (size_t local = 0; local < source.of_local.size(); ++local)
      if (layout.relayed || cluster.rank_at(node_, static_cast<int>(local)) == group_.rank())
        layout.rows.push_back({source.of_local[local].tokens, source.of_local[local].entries});
    add_maxima(static_cast<int>(rank), layout.header);
  }
  return layouts;
}

std::vector<uint32_t> StaticTables::entries_before() const {
  std::vector<uint32_t> before(group_.experts().experts());
  for (int rank = 0; rank < group_.rank(); ++rank) {
    const SourceHeader theirs = header(rank);
    for (size_t i = 0; i < size_t{theirs.tokens} * theirs.k; ++i)
      if (const int32_t expert = table(rank)[i]; expert >= 0) ++before[static_cast<size_t>(expert)];
  }
  return before;
}

}  // namespace epccl::ep
