// Static mode's exchange: every rank's routing table goes to every rank, as records of one size. One small allgather takes the
// place of the messages of layout_message.hpp, whose sizes depend on the routing; each rank then finds what it needs itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/handle/group.hpp"
#include "ep/handle/window.hpp"
#include "ep/layout/layout.hpp"
#include "ep/routing/routing.hpp"
#include "runtime/executor/call_name.hpp"
#include "runtime/executor/compiled_plan.hpp"

namespace epccl::ep {

class StaticTables {
 public:
  StaticTables(const Group& group, const SlotRules& rules);

  /// Collective, from work of the communicator. `topk` is not read where the header names a problem.
  Status gather(const SourceHeader& header, const TopK& topk, const runtime::CallName& name);

  /// In place of gather(), for each source: what it says, and its table, which came in another way.
  void take(int source, const SourceHeader& header, std::span<const int64_t> ids);

  // After gather():
  /// What every source says, and where no header names a problem what this rank needs of it. They refer to this object, until
  /// the next gather().
  /// Error: a record is damaged.
  Result<std::vector<SourceLayout>> layouts();
  /// By expert id: entries of the ranks before this one.
  std::vector<uint32_t> entries_before() const;

 private:
  struct Lists {
    std::vector<uint32_t> tokens, entries;
  };
  /// What one source has for this node.
  struct Source {
    std::vector<Lists> of_local;
    std::vector<uint32_t> node_tokens, rank_tokens, expert_entries;
    SourceHeader maxima;  // what maxima decide, with chunks of this length: the same in every update
  };

  uint64_t record_bytes() const {
    return sizeof(SourceHeader) + uint64_t{rules_.max_tokens} * rules_.max_topk * sizeof(int32_t);
  }
  const std::byte* record(int source) const;
  SourceHeader header(int source) const;
  const int32_t* table(int source) const {
    return reinterpret_cast<const int32_t*>(record(source) + sizeof(SourceHeader));
  }
  Status check(int rank, const SourceHeader& header) const;
  void add_maxima(int rank, SourceHeader& header);
  void sort(int rank, const SourceHeader& header, bool relayed, Source& source) const;

  const Group& group_;
  const SlotRules rules_;
  const int node_;
  runtime::CompiledPlan plan_;
  std::vector<std::byte> own_;  // record
  Window all_;                  // records, in the order of the allgather
  std::vector<Source> sources_;
};

}  // namespace epccl::ep
