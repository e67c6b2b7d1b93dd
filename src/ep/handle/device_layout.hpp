// A layout that kernels make from the tables of all ranks (static mode): the host knows the sizes, which follow from maxima, and on one
// node learns nothing else; on several (device_token_streams.hpp) how long each message is. Its memory is a handle's, for one routing after the
// other.
//
//   rank     its record: how many tokens it has, what it says of itself, its table ----> the same place at every rank
//   ranks    epccl_layout_*: places of rows, terms of sums, counters; and what is wrong with a table
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/kernels/layout_parameters.hpp"
#include "ep/handle/device_token_streams.hpp"
#include "ep/handle/group.hpp"
#include "ep/handle/kernel_tables.hpp"
#include "ep/layout/layout.hpp"
#include "ep/routing/layout_message.hpp"
#include "runtime/engines/kernel_calls.hpp"
#include "runtime/streams/staged_calls.hpp"

namespace epccl::ep {

/// A table that the device can read, and where it shall put what callers ask of a layout.
struct RoutingOnDevice {
  const std::byte* table = nullptr;
  bool wide = true;  // int64, else int32
  uint32_t tokens = 0, k = 0;
  device::kernels::CountersParameters counters;  // its Numbers
  uint8_t* dropped = nullptr;                    // [tokens, k]; null: not asked for
};

class DeviceLayout {
 public:
  /// Allocates: to be called before the turn of a call (DeviceRooms::borrow()). `rules`: of static mode.
  static Result<std::unique_ptr<DeviceLayout>> make(const Group& group, const SlotRules& rules,
                                                    runtime::StagedCalls& from);

  /// The ranks' records, which peers write.
  std::byte* records() const { return records_->data(); }
  uint64_t records_bytes() const { return record_bytes_ * static_cast<uint64_t>(group_.cluster().ranks()); }

  // Both only queue. One after the other, when all ranks are ready for the first, and when all are through with it.
  /// Sends this rank's record to all ranks of the node. `header` names a problem: without the table.
  Status send(device::Queue& queue, std::span<const runtime::PeerRows> peers, const SourceHeader& header,
              const RoutingOnDevice& routing);
  /// Makes the layout. `frame`: of its streams, where there are several nodes.
  Status make(device::Queue& queue, const RoutingOnDevice& routing,
              const std::shared_ptr<const StreamFrame>& frame = nullptr);

  // Of several nodes, in place of send():
  /// Queues what writes this rank's record, to own_record().
  Status write_own(device::Queue& queue, const SourceHeader& header, const RoutingOnDevice& routing);
  const std::byte* own_record() const { return own_->data(); }
  uint64_t record_bytes() const { return record_bytes_; }
  /// Null on one node.
  const DeviceTokenStreams* streams() const { return streams_.get(); }

  // The same where the work runs again and again, in a graph. Of this rank's record all but the table stays as it is:
  /// A header without a problem, and how many tokens there are, in pinned memory that must stay.
  Result<runtime::DeviceRooms::Borrowed> make_head(const SourceHeader& header,
                                                   const RoutingOnDevice& routing);
  Status send_again(device::Queue& queue, std::span<const runtime::PeerRows> peers, const std::byte* head,
                    const RoutingOnDevice& routing);
  /// `wrong_entries`: of each rank, in pinned memory: told instead of headers().
  Status make_again(device::Queue& queue, const RoutingOnDevice& routing,
                    device::kernels::WrongEntry* wrong_entries);
  /// Makes the layout of no tokens, once and now, if there is none yet: what a graph may use before it has made one. Before peers
  /// know of this layout.
  Status make_sure(runtime::KernelCalls& kernels);

  // When that is through:
  /// What every rank says of itself, and the first entry of its table that names no expert. Error: a record is damaged.
  Result<std::vector<SourceHeader>> headers();
  /// All tables, on the host. Waits for the device; by the DeviceWorker, or while it has nothing to do.
  struct Table {
    SourceHeader header;
    std::vector<int64_t> ids;  // [tokens, k]
  };
  Result<std::vector<Table>> read_tables();
  /// Borrows what that needs: before the turn of a call that may read them.
  Status prepare_reading();

  const std::shared_ptr<KernelTables>& tables() const { return tables_; }
  /// How many tokens this rank has in the layout, in the device's memory.
  const uint32_t* tokens_there() const {
    return reinterpret_cast<const uint32_t*>(parameters_.records +
                                             record_bytes_ * record_of_[parameters_.rank]);
  }

 private:
  /// What a record begins with. Kernels read the first two.
  struct alignas(16) Head {
    uint32_t tokens = 0;  // of the table; 0 where there is a problem
    uint32_t wide = 0;
    SourceHeader header;
  };

  /// In places_: where each array begins, and their end.
  struct Places {
    uint64_t ranks = 0, records = 0, bytes = 0;
  };

  DeviceLayout(const Group& group, const SlotRules& rules, runtime::StagedCalls& from);
  void number_places();
  Status borrow();
  Places places() const;
  Status upload_places(device::Queue& queue);
  Head head_of(const SourceHeader& header, const RoutingOnDevice& routing) const;
  /// What brings a record to `record`.
  static std::vector<device::kernels::SmallCopy> record_copies(const std::byte* head,
                                                               const RoutingOnDevice& routing,
                                                               std::byte* record);
  Status queue_layout(device::Queue& queue, const RoutingOnDevice& routing,
                      device::kernels::WrongEntry* wrong_entries);
  Result<int64_t> entry(int source, uint32_t at, bool wide);
  /// In told_.
  uint64_t entry_at() const;

  const Group& group_;
  const SlotRules rules_;
  runtime::StagedCalls& from_;
  const uint64_t record_bytes_;
  device::kernels::LayoutParameters parameters_;
  device::kernels::TermsParameters terms_;
  std::vector<device::kernels::ExpertPlace> experts_;
  std::vector<device::kernels::RankPlace> ranks_;
  std::vector<uint32_t> record_of_;         // by rank: which of the records is its
  runtime::DeviceRooms::Borrowed records_;  // that peers can map
  runtime::DeviceRooms::Borrowed numbers_;  // of the layout
  runtime::DeviceRooms::Borrowed head_;     // pinned: this rank's Head
  runtime::DeviceRooms::Borrowed told_;     // pinned: all ranks' Heads, where tables are wrong, an entry
  runtime::DeviceRooms::Borrowed places_;   // pinned: experts_, ranks_ and record_of_, on their way
  runtime::DeviceRooms::Borrowed own_;      // this rank's record, on its way to other nodes; null on one
  std::mutex reading_mutex_;
  runtime::DeviceRooms::Borrowed read_;  // pinned: records_, as the host reads them; null: nobody has yet
  std::shared_ptr<KernelTables> tables_;
  std::unique_ptr<DeviceTokenStreams> streams_;
  bool has_places_ = false, is_made_ = false;
};

}  // namespace epccl::ep
