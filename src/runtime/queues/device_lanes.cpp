#include "runtime/queues/device_lanes.hpp"

#include <utility>

namespace epccl::runtime {

using plan::Kind;

DeviceLanes::DeviceLanes(device::Device& device, const topology::Cluster& cluster)
    : feed_(device, cluster, {}), rows_(cluster), queues_(device), events_(device) {}

Status DeviceLanes::make_queues(const DeviceProgram& program, bool by_cores) {
  std::array<size_t, plan::lanes> used{};
  lines_ = std::vector<Line>(program.queues.queues.size());
  for (size_t line = 0; line < lines_.size(); ++line) {
    const plan::Lane lane = program.queues.queues[line];
    EPCCL_ASSIGN(lines_[line].queue, queues_.get(lane, used[static_cast<size_t>(lane)]++, by_cores));
  }
  return {};
}

Status DeviceLanes::begin(const DeviceProgram& program, const QueueCall& call) {
  program_ = &program;
  batch_.assign(program.plan.steps.size(), 0);
  under_way_ = 0;
  EPCCL_TRY(make_queues(program, call.by_cores));
  std::vector<device::Queue*> queues;
  for (Line& line : lines_) {
    line.joined.assign(lines_.size(), 0);
    queues.push_back(line.queue);
  }
  feed_.begin(program.queues, call, queues);
  rows_.begin(call.rows, program.queues.row_sources);
  return {};
}

Status DeviceLanes::close(uint16_t number) {
  Line& line = lines_[number];
  if (line.open.empty()) return {};
  EPCCL_TRY(feed_.flush(number));
  EPCCL_ASSIGN(auto event, events_.take());
  EPCCL_TRY(line.queue->record(*event));
  line.batches.push_back({std::move(event), std::exchange(line.open, {})});
  ++line.closed;
  return {};
}

Status DeviceLanes::close() {
  for (size_t number = 0; number < lines_.size(); ++number) EPCCL_TRY(close(static_cast<uint16_t>(number)));
  return {};
}

// The steps of one list of copies have no order, so what depends on one of them begins another list.
Status DeviceLanes::wait_for(uint32_t step, uint16_t number) {
  const uint16_t other = program_->queue_of[step];
  const uint32_t batch = batch_[step];
  if (batch == 0 || batch <= lines_[other].complete) return {};
  if (other == number) return feed_.flush(number);
  uint32_t& known = lines_[number].joined[other];
  if (known >= batch) return {};
  if (batch > lines_[other].closed) EPCCL_TRY(close(other));
  Line& there = lines_[other];
  EPCCL_TRY(feed_.flush(number));
  EPCCL_TRY(lines_[number].queue->wait(*there.batches[batch - there.complete - 1].behind));
  known = batch;
  return {};
}

// The copies that a sum makes as well stand right behind it in the plan.
std::vector<plan::Step> DeviceLanes::results_of(uint32_t sum) const {
  std::vector<plan::Step> copies;
  for (uint32_t next = sum + 1; next < program_->sum_of.size() && program_->sum_of[next] == sum; ++next)
    copies.push_back(program_->plan.steps[next].step);
  return copies;
}

// A copy of a sum waits for nothing that the sum does not wait for: where it is started its sum was given to the queue, and it with that.
Status DeviceLanes::feed(uint16_t number, uint32_t index) {
  const plan::Step& step = program_->plan.steps[index].step;
  if (program_->sum_of[index] != plan::Builder::none) return {};
  if (step.kind == Kind::copy) return feed_.copy(number, step, false);
  EPCCL_TRY(feed_.flush(number));
  return step.kind == Kind::reduce ? feed_.reduce(number, step, results_of(index))
                                   : rows_.start(*lines_[number].queue, step, program_->hand_out_of[index]);
}

Status DeviceLanes::start(uint32_t index) {
  const plan::Step& step = program_->plan.steps[index].step;
  const uint16_t number = program_->queue_of[index];
  for (uint32_t i = 0; i < step.dependency_count; ++i)
    EPCCL_TRY(wait_for(program_->dependencies[step.first_dependency + i], number));
  EPCCL_TRY(feed(number, index));
  lines_[number].open.push_back(index);
  batch_[index] = lines_[number].closed + 1;
  ++under_way_;
  return {};
}

Status DeviceLanes::poll(std::vector<uint32_t>& through) {
  for (Line& line : lines_) {
    while (!line.batches.empty()) {
      Batch& first = line.batches.front();
      EPCCL_ASSIGN(const bool is_complete, first.behind->complete());
      if (!is_complete) break;
      through.insert(through.end(), first.steps.begin(), first.steps.end());
      under_way_ -= first.steps.size();
      events_.give_back(std::move(first.behind));
      line.batches.pop_front();
      ++line.complete;
    }
    EPCCL_TRY(line.queue->failure());
  }
  return {};
}

void DeviceLanes::stop() {
  for (device::Queue* queue : queues_.all()) static_cast<void>(queue->synchronize());
  lines_.clear();
  under_way_ = 0;
}

}  // namespace epccl::runtime
