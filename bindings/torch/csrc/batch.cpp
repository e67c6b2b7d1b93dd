#include "batch.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
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

// The time is that of all together.
bool Together::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout)
    return std::ranges::all_of(parts_, [](const WorkPtr& part) { return part->wait(kNoTimeout); });
  const auto end = std::chrono::steady_clock::now() + bounded(timeout);
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    try {
      // 1: none at all would be no limit.
      if (!parts_[i]->wait(std::max(left, std::chrono::milliseconds(1)))) return false;
    } catch (const c10::DistBackendError&) {
      if (parts_[i]->isCompleted()) throw;
      // The part tells of the time that was left for it.
      TORCH_CHECK_WITH(DistBackendError, false, "epccl: call ", i + 1, " of the ", parts_.size(),
                       " of a batch is not complete after ", timeout.count(), " ms; it goes on");
    }
  }
  return true;
}

void Together::synchronize() {
  for (const WorkPtr& part : parts_) part->synchronize();
}

void Together::blockCurrentStream() {
  for (const WorkPtr& part : parts_) part->blockCurrentStream();
}

std::vector<at::Tensor> Together::result() {
  std::vector<at::Tensor> all;
  for (const WorkPtr& part : parts_) std::ranges::copy(part->result(), std::back_inserter(all));
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> Together::getFuture() {
  using c10::ivalue::Future;
  struct Parts {
    std::vector<c10::intrusive_ptr<Future>> futures;
    std::atomic<size_t> left;
  };
  const auto parts = std::make_shared<Parts>();
  std::vector<c10::Device> devices;
  for (const WorkPtr& part : parts_) {
    parts->futures.push_back(part->getFuture());
    for (const c10::Device& device : parts->futures.back()->devices())
      if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  auto all = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
  // A plain pointer: whoever calls this has the parts.
  const auto complete = [parts = parts.get(), all] {
    std::vector<at::Tensor> results;
    for (const auto& future : parts->futures) {
      if (future->hasError()) return all->setError(future->exception_ptr());
      future->wait();  // which it is over with: the current streams wait
      std::ranges::copy(future->constValue().toTensorVector(), std::back_inserter(results));
    }
    all->markCompleted(c10::IValue(results));
  };
  parts->left = parts->futures.size();
  if (parts->futures.empty()) complete();
  for (const auto& future : parts->futures)
    future->addCallback([parts, complete](Future&) {
      if (--parts->left == 0) complete();
    });
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> Together::getFutureResult() {
  for (const WorkPtr& part : parts_) (void)part->getFutureResult();
  return result_of(*getFuture());
}

#if EPCCL_PYTORCH_AT_LEAST(15)
std::chrono::milliseconds Together::getTimeout() const {
  std::chrono::milliseconds longest = kNoTimeout;
  for (const WorkPtr& part : parts_) longest = std::max(longest, part->getTimeout());
  return longest;
}
#endif

MessageBatch::MessageBatch(DeviceLine& line, int rank, uint64_t sequence, std::chrono::milliseconds patience)
    : line_(line),
      call_(line.prepare(rank, {.type = c10d::OpType::COALESCED,
                                .name = "epccl:batch",
                                .sequence = sequence,
                                .patience = patience})) {}

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
