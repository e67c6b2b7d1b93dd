// What all handles of one expert-parallel group share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/host/shared_copy.hpp"
#include "ep/handle/window_pool.hpp"
#include "ep/routing/expert_map.hpp"
#include "ep/routing/layout_message.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::ep {

/// "flat", "gather", "dedup"; "auto": none.
Result<std::optional<Strategy>> parse_strategy(const std::string& text);

struct GroupOptions {
  uint32_t experts = 0;
  std::vector<int> expert_to_rank;   // empty: contiguous blocks
  uint32_t max_tokens = 0;           // a rank
  uint64_t max_token_bytes = 0;      // of one token with its scales
  std::optional<Strategy> strategy;  // none: the cost model chooses
  uint32_t timeout_ms = 0;  // how long calls wait for a silent rank; 0: as long as the communicator's
};

class Group {
 public:
  /// Collective: to be called from work of `communicator`. `agreed`: an error that every rank has found alike, as options
  /// on which ranks disagree, with both values; then there is no group. An error that is returned has broken the communicator.
  /// The group does not keep the communicator, which must live for as long as anything but its destructor is called.
  static Result<std::shared_ptr<Group>> create(runtime::Communicator& communicator,
                                               const GroupOptions& options, Status& agreed);

  runtime::Communicator& communicator() const { return communicator_; }
  const topology::Cluster& cluster() const { return communicator_.cluster(); }
  int rank() const { return communicator_.rank(); }
  const ExpertMap& experts() const { return experts_; }
  const GroupOptions& options() const { return options_; }
  /// Of the communicator's groups: the same on every rank.
  uint32_t number() const { return number_; }
  WindowPool& windows() { return windows_; }
  /// For work of the communicator.
  device::SharedCopy& shared_copy() { return shared_copy_; }

 private:
  Group(runtime::Communicator& communicator, const GroupOptions& options, ExpertMap experts)
      : communicator_(communicator),
        options_(options),
        experts_(std::move(experts)),
        number_(communicator.next_number()) {}

  runtime::Communicator& communicator_;
  const GroupOptions options_;
  const ExpertMap experts_;
  const uint32_t number_;
  WindowPool windows_;
  device::SharedCopy shared_copy_;
};

}  // namespace epccl::ep
