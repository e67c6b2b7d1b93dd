#include "device/host/host_queue.hpp"

#include "device/host/host_device.hpp"

namespace epccl::device {
namespace {

Result<HostQueueEvent*> of_host(QueueEvent& event) {
  if (auto* host = dynamic_cast<HostQueueEvent*>(&event)) return host;
  return error(Code::invalid_argument, "an event of another device in a queue of the host");
}

}  // namespace

Status released_failure() {
  return {Code::remote_error, "a rank gave up: what waited for others was let through"};
}

void post_and_tell(SignalWord& word, uint64_t value) {
  raise(word, value);
  the_host().told(word);
}

Result<bool> HostQueueEvent::complete() const {
  return mark_ == nullptr || mark_->reached.load(std::memory_order_acquire);
}

std::shared_ptr<HostMark> HostQueueEvent::mark() {
  return mark_ = std::make_shared<HostMark>();
}

HostQueue::HostQueue(std::shared_ptr<HostEngines> engines, QueueKind kind)
    : engines_(std::move(engines)), line_(engines_->add(kind)), kind_(kind) {}

HostQueue::~HostQueue() {
  engines_->remove(line_);
}

Status HostQueue::copy(std::span<const CopyWork> copies) {
  engines_->append(*line_, CopyItem{{copies.begin(), copies.end()}});
  return {};
}

Status HostQueue::reduce(const ReduceWork& work) {
  if (kind_ == QueueKind::copy_engine)
    return {Code::invalid_argument, "a copy engine cannot reduce: that takes a queue of kind compute"};
  if (work.sources.empty()) return {Code::invalid_argument, "a reduction of nothing"};
  ReduceItem item{work, {work.sources.begin(), work.sources.end()}, {work.also.begin(), work.also.end()}};
  item.work.sources = {};
  item.work.also = {};
  engines_->append(*line_, std::move(item));
  return {};
}

Status HostQueue::post(SignalWord& word, uint64_t value) {
  engines_->append(*line_, PostItem{&word, value});
  return {};
}

Status HostQueue::wait(const SignalWord& word, uint64_t value) {
  engines_->append(*line_, WaitItem{&word, value});
  return {};
}

Status HostQueue::record(QueueEvent& event) {
  EPCCL_ASSIGN(HostQueueEvent * host, of_host(event));
  engines_->append(*line_, MarkItem{host->mark()});
  return {};
}

Status HostQueue::wait(const QueueEvent& event) {
  // Only looked at.
  EPCCL_ASSIGN(const HostQueueEvent* host, of_host(const_cast<QueueEvent&>(event)));
  if (host->last() != nullptr) engines_->append(*line_, WaitMarkItem{host->last()});
  return {};
}

Status HostQueue::synchronize() {
  return engines_->drain(*line_);
}

Result<bool> HostQueue::idle() {
  return engines_->idle(*line_);
}

Status HostQueue::failure() const {
  return engines_->failure(*line_);
}

}  // namespace epccl::device
