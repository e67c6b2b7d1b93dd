// What the GPUs of several nodes need of a handle's routing: its plans as programs of their queues, and the tables of these in a
// device's memory. Both are made when a call first asks for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "ep/layout/layout.hpp"
#include "plan/plan.hpp"
#include "runtime/engines/kernel_calls.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::ep {

/// Memory for the tables of a plan: the device's own, and pinned. Of as many bytes each.
struct TablesRoom {
  runtime::DeviceRooms::Borrowed there, here;
};

/// What tables take there, and with them so many targets of what relays hand out.
uint64_t table_bytes(const plan::RowTables& tables, uint64_t targets = 0);
struct TableSizes {
  uint64_t lists = 0, targets = 0;  // of a dispatch
  uint64_t combine = 0;
  uint64_t dispatch() const { return lists + targets; }
};
/// For any routing of at most `tokens` a rank and top-`k` that a handle of these rules can be given. `forced`: no other strategy is used.
TableSizes most_table_bytes(const topology::Cluster& cluster, int rank, const SlotRules& rules,
                            uint64_t tokens, uint64_t k, std::optional<Strategy> forced);
/// Of static mode, where tables are as large as they can become, on the host too. Error, the same on every rank: some rank's would have
/// places that 32 bits cannot number.
Status check_table_sizes(const topology::Cluster& cluster, const SlotRules& rules,
                         std::optional<Strategy> forced);

class DevicePlans {
 public:
  struct Key {
    bool combine = false;
    uint64_t row_bytes = 0;
    bool contiguous_input = false;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Build = std::function<plan::RankPlan()>;
  struct Ready {
    const runtime::DeviceProgram* program = nullptr;
    runtime::TablesThere tables;
  };
  /// The plan that `build` makes, with these tables. `room`: for them, where they are not on the device yet.
  Result<Ready> prepare(const Key& key, const std::shared_ptr<const plan::RowTables>& tables,
                        const TablesRoom& room, runtime::KernelCalls& kernels, const Build& build);

  /// The routing is another. `keep_plans`: they serve all routings.
  void forget(bool keep_plans);
  /// Kernels have made the tables of this routing, all but their counts: they are there.
  using HandOutsOf = std::function<std::vector<runtime::HandOutRows>(const runtime::DeviceProgram&)>;
  void tables_are(const runtime::TablesThere& there, HandOutsOf hand_outs) {
    made_ = {there, std::move(hand_outs)};
  }

 private:
  struct Uploaded {
    std::shared_ptr<const plan::RowTables> tables;
    TablesRoom room;
    runtime::TablesThere there;
    std::vector<runtime::HandOutRows> hand_outs;
  };
  static Result<Uploaded> upload(const runtime::DeviceProgram& program,
                                 const std::shared_ptr<const plan::RowTables>& tables, const TablesRoom& room,
                                 runtime::KernelCalls& kernels);

  std::map<Key, runtime::DeviceProgram> programs_;
  Uploaded of_dispatch_, of_combine_;
  struct Made {
    runtime::TablesThere there;
    HandOutsOf hand_outs;  // of dispatches
  };
  std::optional<Made> made_;  // by kernels
};

}  // namespace epccl::ep
