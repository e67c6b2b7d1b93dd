// "Is A complete before B starts, whatever the schedule?", asked of a StepGraph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/step_graph.hpp"

namespace epccl::plan {

/// Searches backward from the later step over dependencies, messages and signals until every asked step is
/// found. The steps asked for are near in plans that are right; steps that lie no deeper than all of them are
/// never visited. Holds marks for one search at a time: one thread. `graph` and `order` must outlive it.
class HappensBefore {
 public:
  HappensBefore(const StepGraph& graph, const StepOrder& order);

  /// Whether `earlier` is new among the steps asked for since the last search; adds it.
  bool ask(uint32_t earlier);

  /// Looks for all steps asked for. True when each is complete before `later` starts; then missing() is
  /// empty.
  ///
  /// That a message has arrived does not say that its send is complete (the source may still be in use): only
  /// what depends on the send itself knows that.
  bool search(uint32_t later);

  /// The same of what is complete before `rank` is through with all its steps, as far as its node's ranks tell each other.
  bool search_end(int rank);

  /// Whether the last search left `earlier` unfound. Valid until the next ask().
  bool missing(uint32_t earlier) const { return asked_in_[earlier] == round_; }

 private:
  enum class Messages : uint8_t { follow, ignore };
  bool search_all(Messages messages);
  void follow(uint32_t id, bool completes);

  const StepGraph& graph_;
  const StepOrder& order_;
  std::vector<uint32_t> asked_in_, seen_in_;  // per step: the round of the mark
  std::vector<uint32_t> queue_;
  uint32_t round_ = 1;
  uint32_t remaining_ = 0;
  uint32_t floor_ = UINT32_MAX;  // depth of the shallowest step asked for
  bool searched_ = false;
};

}  // namespace epccl::plan
