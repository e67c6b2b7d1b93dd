#include "runtime/queues/copy_line.hpp"

#include <utility>

namespace epccl::runtime {
namespace {

constexpr size_t batches_at_first = 16;  // under way at once

}  // namespace

Result<CopyLine> CopyLine::make(device::Device& device) {
  CopyLine line(device);
  EPCCL_ASSIGN(line.engine_, device.make_queue(device::QueueKind::copy_engine));
  if (device.can_copy_by_cores()) {
    EPCCL_ASSIGN(line.cores_, device.make_queue(device::QueueKind::cores));
  }
  EPCCL_TRY(line.events_.prepare(batches_at_first));
  line.use_cores(false);
  return line;
}

void CopyLine::use_cores(bool cores, int blocks) {
  queue_ = cores && cores_ != nullptr ? cores_.get() : engine_.get();
  queue_->set_blocks(blocks);
}

void CopyLine::add(const device::CopyWork& work, uint64_t token) {
  copies_.push_back(work);
  added_.push_back(token);
}

Status CopyLine::flush() {
  if (added_.empty()) return {};
  EPCCL_TRY(queue_->copy(copies_));
  EPCCL_ASSIGN(auto event, events_.take());
  EPCCL_TRY(queue_->record(*event));
  batches_.push_back({std::move(event), std::exchange(added_, {})});
  copies_.clear();
  return {};
}

Status CopyLine::poll(std::vector<uint64_t>& through) {
  while (!batches_.empty()) {
    Batch& first = batches_.front();
    EPCCL_ASSIGN(const bool is_complete, first.behind->complete());
    if (!is_complete) break;
    through.insert(through.end(), first.tokens.begin(), first.tokens.end());
    events_.give_back(std::move(first.behind));
    batches_.pop_front();
  }
  return queue_->failure();
}

void CopyLine::drain() {
  static_cast<void>(queue_->synchronize());
  copies_.clear();
  added_.clear();
  batches_.clear();
}

}  // namespace epccl::runtime
