#include "runtime/executor/reduce_steps.hpp"

#include <algorithm>

namespace epccl::runtime {

using plan::Buffer;

namespace {

// What is read from a peer's unmapped memory at once: it should still be in the cache when it is added up.
constexpr uint64_t fetched_at_once = 64 << 10;

}  // namespace

void ReduceSteps::begin(transports::CallScratch scratch, const CompiledPlan& plan, const Buffers& buffers,
                        const device::Reduction& reduction) {
  scratch_ = scratch;
  plan_ = &plan;
  buffers_ = buffers;
  reduction_ = &reduction;
}

std::byte* ReduceSteps::own(const plan::Location& location) const {
  if (location.buffer == Buffer::scratch) return node_.scratch(node_.local(), scratch_) + location.offset;
  if (location.buffer == Buffer::output) return static_cast<std::byte*>(buffers_.output) + location.offset;
  // Input is only read: the plan's verifier holds builders to that.
  return static_cast<std::byte*>(const_cast<void*>(buffers_.input)) + location.offset;
}

Status ReduceSteps::find_sources(const plan::Step& step) {
  sources_.clear();
  unmapped_.clear();
  for (uint16_t i = 0; i < step.source_count; ++i) {
    const plan::Location& at = plan_->row_sources[step.first_source + i].at;
    const int local = plan_->row_source_locals[step.first_source + i];
    std::byte* address = nullptr;
    if (at.rank == rank_) {
      address = own(at);
    } else if (at.buffer == Buffer::scratch) {
      address = node_.scratch(local, scratch_) + at.offset;
    } else {
      const transports::CallRecord& record = node_.call(local, scratch_.sequence);
      EPCCL_ASSIGN(address,
                   node_.address_of(local, (at.buffer == Buffer::input ? record.inputs : record.outputs)[0]));
      if (address != nullptr)
        address += at.offset;
      else
        unmapped_.push_back(i);
    }
    sources_.push_back({address, i < step.raw_count});
  }
  return {};
}

Status ReduceSteps::fetch_unmapped(const plan::Step& step, uint64_t offset, uint64_t bytes) {
  fetched_.resize(std::max<size_t>(fetched_.size(), unmapped_.size() * fetched_at_once));
  for (size_t i = 0; i < unmapped_.size(); ++i) {
    const size_t source = step.first_source + unmapped_[i];
    const plan::Location& at = plan_->row_sources[source].at;
    const int local = plan_->row_source_locals[source];
    const transports::CallRecord& record = node_.call(local, scratch_.sequence);
    std::byte* to = fetched_.data() + i * fetched_at_once;
    EPCCL_TRY(node_.read(local, (at.buffer == Buffer::input ? record.inputs : record.outputs)[0],
                         at.offset + offset, to, bytes));
    sources_[unmapped_[i]].data = to;
  }
  return {};
}

Status ReduceSteps::run(const plan::Step& step) {
  EPCCL_TRY(find_sources(step));
  const uint64_t element = device::bytes_of(reduction_->element);
  std::byte* destination = own(step.destination);
  if (unmapped_.empty()) {
    device::reduce(*reduction_, sources_, step.finishes, destination, step.bytes / element);
    return {};
  }
  for (uint64_t offset = 0; offset < step.bytes; offset += fetched_at_once) {
    const uint64_t bytes = std::min(fetched_at_once, step.bytes - offset);
    EPCCL_TRY(fetch_unmapped(step, offset, bytes));
    device::reduce(*reduction_, sources_, step.finishes, destination + offset, bytes / element);
    for (size_t i = 0; i < sources_.size(); ++i)
      if (std::ranges::find(unmapped_, i) == unmapped_.end()) sources_[i].data += fetched_at_once;
  }
  return {};
}

}  // namespace epccl::runtime
