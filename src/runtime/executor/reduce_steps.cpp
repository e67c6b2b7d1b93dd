#include "runtime/executor/reduce_steps.hpp"

#include <algorithm>

namespace epccl::runtime {

using plan::Buffer;

namespace {

// What is read from peers' unmapped memory at once should still be in the cache when it is added up. But each read costs, and where
// several ranks read from one the more: pieces of 128 KiB from two peers take a fifth less than those of 64 KiB.
constexpr uint64_t fetched_in_all = 512 << 10, fetched_at_least = 64 << 10, page = 4 << 10;

uint64_t fetched_at_once(size_t peers) {
  return std::max(fetched_at_least, fetched_in_all / peers / page * page);
}

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
  fetched_.resize(std::max<size_t>(fetched_.size(), unmapped_.size() * bytes));
  for (size_t i = 0; i < unmapped_.size(); ++i) {
    const size_t source = step.first_source + unmapped_[i];
    const plan::Location& at = plan_->row_sources[source].at;
    const int local = plan_->row_source_locals[source];
    const transports::CallRecord& record = node_.call(local, scratch_.sequence);
    std::byte* to = fetched_.data() + i * bytes;
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
  const uint64_t at_once = fetched_at_once(unmapped_.size());
  for (uint64_t offset = 0; offset < step.bytes; offset += at_once) {
    const uint64_t bytes = std::min(at_once, step.bytes - offset);
    EPCCL_TRY(fetch_unmapped(step, offset, bytes));
    device::reduce(*reduction_, sources_, step.finishes, destination + offset, bytes / element);
    for (size_t i = 0; i < sources_.size(); ++i)
      if (std::ranges::find(unmapped_, i) == unmapped_.end()) sources_[i].data += at_once;
  }
  return {};
}

}  // namespace epccl::runtime
