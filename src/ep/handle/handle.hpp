// The layout of one routing: made by update(), used by any number of dispatches and combines.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ep/handle/device_layout.hpp"
#include "ep/handle/group.hpp"
#include "ep/handle/header_check.hpp"
#include "ep/handle/kernel_tables.hpp"
#include "ep/handle/routing_plans.hpp"
#include "ep/handle/static_tables.hpp"
#include "ep/handle/window.hpp"
#include "ep/layout/layout.hpp"
#include "ep/routing/routing.hpp"
#include "runtime/executor/row_buffers.hpp"

namespace epccl::ep {

/// Rows that this rank hands on in a dispatch, by where they go.
struct LinkTraffic {
  uint64_t tokens_local = 0;      // to its own output
  uint64_t tokens_node = 0;       // to ranks of its node, as source or as relay
  uint64_t tokens_network = 0;    // to other nodes
  uint64_t returned_network = 0;  // in a combine, as relay
};

class Handle {
 public:
  Handle(std::shared_ptr<Group> group, const SlotRules& rules)
      : group_(std::move(group)),
        rules_(rules),
        routing_(group_->cluster(), group_->experts()),
        plans_(
            *group_, [this](algorithms::TokenExchange& exchange) { add_sums(layout(), exchange); },
            [this](algorithms::TokenExchange& exchange) { add_fetched(layout(), exchange); }) {
    if (rules.max_topk > 0) static_.emplace(*group_, rules);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() = default;

  /// Collective, from work of the communicator. An error that is returned has broken the communicator; one that all ranks
  /// found alike in what they were given is kept: failure(). `on_device`: its calls are to be a device's queues'.
  Status update(const TopK& topk, bool on_device = false);

  // In static mode, before updates that are made again and again:
  /// Collective: what the ranks' handles must agree on, and what follows from maxima, once; then it does nothing. Later failure().
  Status agree();
  /// Collective: the same, and what is wrong with tables of these sizes, whatever they hold. `text` is added
  /// to layout_text(), and equal on ranks that agree. `agreed`: what all ranks found alike.
  Status agree_on(const TopK& sizes, const std::string& text, Status& agreed);
  /// As update(), but an entry that names no expert counts as unused. `wrong`: the first of them, alike on every rank; ok: none.
  Status update_again(const TopK& topk, bool on_device, Status& wrong);

  // Where kernels make the layout, of static mode:
  /// Of several nodes, in place of agree(): the same, with the streams of a device's calls: frame(). Where it is null failure() tells why.
  Status agree_across();
  const std::shared_ptr<const StreamFrame>& frame() const { return frame_; }
  /// As failure(), of what ranks have said of themselves; the same on every rank.
  Status check(std::span<const SourceHeader> headers) const {
    return check_headers(headers, group_->options(), rules_.max_topk);
  }
  bool agreed() const { return agreed_; }
  /// After the first update.
  SourceHeader describe(const TopK& topk) const;
  /// The routing is now the one that `layout` has made. `headers`: what the ranks have said; failure() tells what is wrong with that.
  void take_layout(std::shared_ptr<DeviceLayout> layout, uint32_t tokens,
                   std::span<const SourceHeader> headers);
  /// Before the host moves rows or counts them: where the layout was made by kernels, makes the lists of it that update() would
  /// have made. Without a word to other ranks.
  Status need_lists();

  /// Which of the communicator's handles this is, in the order of their first updates: of two that are alike in all else ranks have
  /// to take the same one. After the first update.
  uint32_t number() const { return number_.value_or(0); }
  /// What an update is called; equal on ranks that agree.
  std::string layout_text() const;
  /// Likewise. Ranks of different nodes tell each other in it which handle they mean: what comes of that all of them know alike.
  runtime::CallName layout_name() const { return {layout_text(), layout_kind()}; }

  Group& group() const { return *group_; }
  runtime::Communicator& communicator() const { return group_->communicator(); }
  const SlotRules& rules() const { return rules_; }

  /// Why the last update() came to nothing; ok after one that did.
  const Status& failure() const { return failure_; }

  // After update():
  uint32_t tokens() const { return tokens_; }
  uint32_t k() const { return k_; }
  /// Rows of this rank's output, padding included.
  uint32_t slots() const { return node_slots_->slots(local()); }
  const Routing& routing() const { return routing_; }
  const NodeSlots& node_slots() const { return *node_slots_; }
  const std::vector<SourceLayout>& sources() const { return sources_; }
  Strategy strategy() const { return shape_.strategy; }
  /// [tokens, k]: 1 where the entry was dropped for its expert's capacity; empty without a capacity.
  const std::vector<uint8_t>& dropped() const { return dropped_; }
  LinkTraffic traffic() const;

  /// use(slot, entry) for every entry that this rank receives and keeps.
  template <typename Use>
  void for_each_slot(Use use) const {
    const uint32_t first_expert = group_->experts().first(group_->rank());
    for (int source = 0; source < group_->cluster().ranks(); ++source)
      for_each_entry(*node_slots_, source, local(), first_expert,
                     sources_[static_cast<size_t>(source)].rows_of(local()),
                     [&](uint32_t, uint32_t slot, Entry entry) {
                       if (slot != NodeSlots::dropped) use(slot, entry);
                     });
  }

  /// Of the routing.
  RoutingPlans& plans() { return plans_; }

  /// Weights of the rows this rank received: k floats a row, as the last dispatch brought them.
  Window& weights() { return weights_; }
  bool has_weights() const { return has_weights_; }
  void set_has_weights(bool value) {
    has_weights_ = value;
    kernel_weights_ = nullptr;
  }
  /// The same of a dispatch that kernels made, in the device's memory; null: the last one brought none, or was the host's.
  const runtime::DeviceRooms::Borrowed& kernel_weights() const { return kernel_weights_; }
  void set_kernel_weights(runtime::DeviceRooms::Borrowed weights) {
    has_weights_ = false;
    kernel_weights_ = std::move(weights);
  }
  /// Those of this routing: the ones made before, or new ones in the given memory.
  Result<KernelTables*> kernel_tables(const KernelTables::Limits& limits,
                                      const runtime::DeviceRooms::Borrowed& there,
                                      const runtime::DeviceRooms::Borrowed& here);
  /// Bytes of a row in the last dispatch and combine, 0 before one.
  uint64_t dispatch_row_bytes = 0, combine_row_bytes = 0;

  size_t local() const { return static_cast<size_t>(group_->cluster().local_of(group_->rank())); }

 private:
  /// How a source's tokens are cut into blocks, by strategy.
  struct Cut {
    std::array<uint32_t, 3> block_tokens{}, turn_blocks{};
    friend bool operator==(const Cut&, const Cut&) = default;
  };
  /// What plans have of a routing beside its lists.
  struct Shape {
    std::vector<Cut> cuts;  // by source
    Strategy strategy = Strategy::dedup;
    uint32_t turn_blocks = 1;
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  static Status no_routing();
  std::string layout_kind() const;
  void take_number() {
    if (!number_) number_ = communicator().next_number();
  }
  Status update_as(const SourceHeader& header, const TopK& topk);
  uint32_t k_of_routing(const TopK& topk) const;
  /// How blocks of tokens go to other nodes.
  algorithms::Parameters network_parameters() const;
  Status exchange(SourceHeader header, const TopK& topk);
  Status exchange_messages(const SourceHeader& header);
  uint64_t scratch_for(int source, Strategy strategy) const;
  Status choose();
  Status find_dropped(const TopK& topk);
  Result<std::vector<uint32_t>> entries_before();
  LayoutView layout() const;
  Status make_plans();
  std::vector<Cut> cuts() const;
  void take_streams();
  /// Those of several nodes, of device_layout_.
  void use_lists_of_kernels();

  const std::shared_ptr<Group> group_;
  const SlotRules rules_;
  std::optional<uint32_t> number_;
  std::optional<StaticTables> static_;  // in static mode
  Status failure_ = no_routing();
  uint32_t tokens_ = 0, k_ = 0;
  Routing routing_;
  std::vector<int64_t> again_;  // the table of update_again()
  SourceMessages own_messages_;
  std::vector<std::byte> messages_;  // that sources_ refer to
  std::vector<SourceLayout> sources_;
  std::optional<NodeSlots> node_slots_;
  Shape shape_;
  RoutingPlans plans_;
  std::vector<uint8_t> dropped_;
  bool on_device_ = false;
  // Of layouts of several nodes that kernels make; null before the first.
  std::shared_ptr<const StreamFrame> frame_;
  Shape frame_shape_;
  Window weights_;
  bool has_weights_ = false;
  std::shared_ptr<KernelTables> kernel_tables_;
  bool agreed_ = false;  // in static mode: an update has found nothing that ranks disagree on
  std::shared_ptr<DeviceLayout> device_layout_;
  bool has_lists_ = false;  // of device_layout_
  runtime::DeviceRooms::Borrowed kernel_weights_;
};

}  // namespace epccl::ep
