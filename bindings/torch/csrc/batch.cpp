#include "batch.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "tensors.hpp"

namespace epccl_torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

Together::Together(int rank, std::vector<WorkPtr> parts)
    : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

bool Together::isCompleted() {
  return std::ranges::all_of(parts_, [](const WorkPtr& part) { return part->isCompleted(); });
}

bool Together::isSuccess() const {
  return std::ranges::all_of(parts_, [](const WorkPtr& part) { return part->isSuccess(); });
}

std::exception_ptr Together::exception() const {
  for (const WorkPtr& part : parts_)
    if (const std::exception_ptr why = part->exception()) return why;
  return nullptr;
}

bool Together::wait(std::chrono::milliseconds timeout) {
  return std::ranges::all_of(parts_, [=](const WorkPtr& part) { return part->wait(timeout); });
}

void Together::synchronize() {
  for (const WorkPtr& part : parts_) part->synchronize();
}

std::vector<at::Tensor> Together::result() {
  std::vector<at::Tensor> all;
  for (const WorkPtr& part : parts_) std::ranges::copy(part->result(), std::back_inserter(all));
  return all;
}

MessageBatch::MessageBatch(DeviceLine& line, int rank, uint64_t sequence)
    : line_(line),
      call_(line.prepare(rank,
                         {.type = c10d::OpType::COALESCED, .name = "epccl:batch", .sequence = sequence})) {}

DeviceLine::CallPtr MessageBatch::add(bool is_send, const at::Tensor& tensor, int peer) {
  TORCH_CHECK(tensor.device() == line_.device(), "epccl: a batch of sends and receives of tensors on ",
              line_.device(), " and on ", tensor.device());
  call_->add(tensor);
  messages_.push_back({is_send, tensor, peer});
  return call_;
}

DeviceLine::CallPtr MessageBatch::launch() {
  line_.launch(call_, [this](const Line& line) {
    std::vector<Target> targets;
    for (const Message& message : messages_) targets.emplace_back(message.tensor, message.is_send);
    check(epcclGroupStart(), "batch_isend_irecv");
    for (size_t i = 0; i < messages_.size(); ++i) {
      void* const data = line.place(targets[i].data());
      const size_t bytes = targets[i].memory().nbytes();
      // What is refused here is told by the end of the group.
      if (messages_[i].is_send)
        (void)epcclSend(data, bytes, epcclUint8, messages_[i].peer, line.comm, line.stream);
      else
        (void)epcclRecv(data, bytes, epcclUint8, messages_[i].peer, line.comm, line.stream);
    }
    check(epcclGroupEnd(), "batch_isend_irecv");
    for (size_t i = 0; i < messages_.size(); ++i)
      if (!messages_[i].is_send) targets[i].finish();
  });
  return call_;
}

}  // namespace epccl_torch
