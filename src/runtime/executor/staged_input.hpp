// An input that peers cannot map, copied to where they can.
//
//   input (malloc'ed)        own scratch                        peer
//   [  offered  ]  --copy->  | the plan's | [  offered  ] |  -> reads it as from a mapped buffer
//
// To read such memory where it lies takes a system call a block (process_vm_readv), in which the kernel looks up every page. Of small
// blocks two copies by the processors themselves cost less; of large ones, that depends (staging_choice.hpp).
#pragma once

#include <optional>
#include <string_view>

#include "device/host/shared_copy.hpp"
#include "runtime/executor/compiled_plan.hpp"
#include "runtime/executor/node_calls.hpp"
#include "runtime/executor/staging_choice.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

class StagedInput {
 public:
  StagedInput(int rank, transports::NodeMemory& node, const CopyPolicy& copies)
      : rank_(rank), node_(node), copies_(copies), choice_(copies.staging) {}

  /// Copies what the plan offers of the call's input into this rank's scratch of the call, behind what the plan uses, and describes
  /// that copy as peers need to know it. Nothing where peers can map the input, where they read none of it, where it does not fit, or
  /// where they had better read it where it lies. After NodeCalls::begin(), before the call's first post.
  std::optional<transports::BufferRef> stage(const CompiledPlan& plan, const Call& call);
  /// The call is over, and well.
  void call_over();

 private:
  bool is_better_staged(uint64_t bytes, const Call& call);
  void copy(std::byte* to, const std::byte* from, uint64_t bytes, bool past_cache);
  void log(const StagingChoice::Found& found) const;

  int rank_;
  transports::NodeMemory& node_;
  const CopyPolicy copies_;
  device::SharedCopy copy_;
  StagingChoice choice_;
  struct Chosen {
    std::string_view text;  // the call's
    uint64_t bytes;
    uint16_t kind;
    double begun;
  };
  std::optional<Chosen> chosen_;  // of a call that a choice was made for
};

}  // namespace epccl::runtime
