#include "runtime/queues/queue_feed.hpp"

#include <algorithm>

namespace epccl::runtime {

device::QueueKind kind_of(plan::Lane lane, bool by_cores) {
  if (by_cores) return device::QueueKind::cores;
  return lane == plan::Lane::compute || lane == plan::Lane::signal ? device::QueueKind::compute
                                                                   : device::QueueKind::copy_engine;
}

void QueueFeed::begin(const QueueProgram& program, const QueueCall& call,
                      const std::vector<device::Queue*>& queues) {
  program_ = &program;
  call_ = &call;
  queues_ = queues;
  gathered_.assign(queues.size(), {});
}

std::byte* QueueFeed::address(const plan::Location& location) const {
  const auto local = static_cast<size_t>(cluster_.local_of(location.rank));
  return call_->buffers[local][static_cast<size_t>(location.buffer)] + location.offset;
}

bool QueueFeed::may_use_cores(const plan::Step& copy) const {
  const std::vector<bool>& by_local = call_->movers.may_use_cores;
  const auto may = [&](const plan::Location& location) {
    return by_local[static_cast<size_t>(cluster_.local_of(location.rank))];
  };
  return !by_local.empty() && may(copy.source) && may(copy.destination);
}

Status QueueFeed::copy(uint32_t queue, const plan::Step& step, bool begins_list) {
  if (begins_list) EPCCL_TRY(flush(queue));
  const device::CopyWork work{address(step.destination), address(step.source), step.bytes,         step.rows,
                              step.destination_stride,   step.source_stride,   may_use_cores(step)};
  // In place, a block may be where it belongs.
  if (work.destination == work.source) return {};
  if (step.rows > 1) return add(queue, work);
  for (uint64_t at = 0; at < step.bytes; at += limits_.copy_bytes) {
    device::CopyWork part = work;
    part.destination += at;
    part.source += at;
    part.bytes = std::min(limits_.copy_bytes, step.bytes - at);
    EPCCL_TRY(add(queue, part));
  }
  return {};
}

Status QueueFeed::add(uint32_t queue, const device::CopyWork& work) {
  gathered_[queue].push_back(work);
  const bool is_full = !by_cores() && gathered_[queue].size() >= limits_.copies;
  return is_full ? flush(queue) : Status{};
}

Status QueueFeed::reduce(uint32_t queue, const plan::Step& step, std::span<const plan::Step> also) {
  if (step.source_count > device_.max_reduce_sources())
    return error(Code::invalid_usage, "a reduction of {} parts at once: {} can do {}", step.source_count,
                 device_.description(), device_.max_reduce_sources());
  if (call_->reduction == nullptr)
    return {Code::internal_error, "a plan reduces in a call that does not say how"};
  std::vector<device::ReduceSource> sources;
  for (uint16_t i = 0; i < step.source_count; ++i)
    sources.push_back({address(program_->row_sources[step.first_source + i].at), i < step.raw_count});
  std::vector<std::byte*> places;
  for (const plan::Step& copy : also) places.push_back(address(copy.destination));
  queues_[queue]->set_blocks(call_->movers.blocks);
  return queues_[queue]->reduce({*call_->reduction, sources, step.finishes, address(step.destination),
                                 step.bytes / device::bytes_of(call_->reduction->element), places});
}

Status QueueFeed::flush(uint32_t queue) {
  if (gathered_[queue].empty()) return {};
  if (by_cores()) queues_[queue]->set_blocks(call_->movers.blocks);
  Status status = queues_[queue]->copy(gathered_[queue]);
  gathered_[queue].clear();
  return status;
}

Status QueueFeed::flush_all() {
  for (uint32_t queue = 0; queue < queues_.size(); ++queue) EPCCL_TRY(flush(queue));
  return {};
}

}  // namespace epccl::runtime
