// GPUs of a process group, and batches.
#include <c10/core/impl/FakeGuardImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <typeinfo>
#include <utility>

#include "backend.hpp"
#include "errors.hpp"
#include "tensors.hpp"

namespace epccl_torch {
namespace {

// Where there are none, tracing (torch.compile, FakeTensorMode) registers a stand-in that counts some and does nothing. (No
// dynamic_cast: to a final class, which another library has, too, it may compare addresses.)
bool is_stand_in(const c10::impl::DeviceGuardImplInterface& impl) {
  constexpr auto cuda = c10::DeviceType::CUDA;
  const std::type_info& type = typeid(impl);
  return type == typeid(c10::impl::FakeGuardImpl<cuda>) ||
         type == typeid(c10::impl::NoOpDeviceGuardImpl<cuda>);
}

bool there_are_gpus() {
  const auto* const impl =
      c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].load();
  return impl != nullptr && !is_stand_in(*impl) && impl->deviceCount() > 0;
}

}  // namespace

// Of several GPUs of one rank the first that it uses meets the first of the others. abort() does not wait for those who wait here.
DeviceLine& EpcclBackend::device_line(c10::Device device) {
  const std::lock_guard one_at_a_time(making_line_);
  communicator_->handle();
  size_t number = 0;
  {
    const std::lock_guard lock(devices_mutex_);
    const auto found = device_lines_.find(device);
    if (found != device_lines_.end()) return *found->second;
    number = device_lines_.size();
  }
  // Once is enough: what the failed meeting has written is still in the store.
  if (no_more_lines_) std::rethrow_exception(no_more_lines_);
  std::unique_ptr<DeviceLine> made;
  try {
    made =
        std::make_unique<DeviceLine>(Meeting{store_, "epccl/gpus/" + std::to_string(number), size_, rank_,
                                             timeout_, "GPU tensors of process group " + name_ + other_names_,
                                             [this] { check_others("GPU tensors"); }},
                                     device);
  } catch (...) {
    no_more_lines_ = std::current_exception();
    throw;
  }
  communicator_->handle();
  const std::lock_guard lock(devices_mutex_);
  return *device_lines_.emplace(device, std::move(made)).first->second;
}

void EpcclBackend::eagerConnectSingleDevice(at::Device device) {
  if (device.is_cuda()) (void)device_line(device);
}

std::vector<DeviceLine*> EpcclBackend::device_lines() {
  const std::lock_guard lock(devices_mutex_);
  std::vector<DeviceLine*> lines;
  for (const auto& entry : device_lines_) lines.push_back(entry.second.get());
  return lines;
}

// A communicator that is left waits for its calls, of which the others may never make theirs.
bool EpcclBackend::leave_gpus_at_end(bool waits) noexcept {
  bool all = true;
  for (DeviceLine* line : device_lines()) {
    if (line->idle())
      line->communicator()->leave();
    else if (!waits)
      line->communicator()->abort();
    else
      all = false;
  }
  return all;
}

bool EpcclBackend::gpus_come_to_rest() {
  if (left_) return true;  // shutdown() has waited
  const auto end = std::chrono::steady_clock::now() + gpus_time_to_end;
  while (!std::ranges::all_of(device_lines(), &DeviceLine::idle)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::function<void()> EpcclBackend::rest_of_current_streams(const c10d::BarrierOptions& opts) {
  std::vector<c10::Device> devices;
  for (const DeviceLine* line : device_lines()) devices.push_back(line->device());
  if (there_are_gpus())
    for (const int64_t index : opts.device_ids)
      devices.emplace_back(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  std::vector<std::shared_ptr<c10::Event>> events;
  for (const c10::Device& device : devices) {
    events.push_back(std::make_shared<c10::Event>(device.type()));
    events.back()->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return [events] {
    for (const auto& event : events) event->synchronize();
  };
}

bool EpcclBackend::supportsCoalescing() const {
  return there_are_gpus();
}

// One that is open still was left by an exception of the program's own.
void EpcclBackend::startCoalescing() {
  if (batch_) drop_batch(backend_error("this message's batch has not ended, as the program left it"));
  batch_.emplace();
}

void EpcclBackend::drop_batch(const std::exception_ptr& why) {
  if (batch_->messages) batch_->messages->drop(why);
  batch_.reset();
}

EpcclBackend::WorkPtr EpcclBackend::in_batch(const std::function<WorkPtr()>& call) {
  try {
    check_process();
    return call();
  } catch (...) {
    if (batch_) drop_batch(std::current_exception());
    throw;
  }
}

EpcclBackend::WorkPtr EpcclBackend::note(WorkPtr work) {
  if (batch_) batch_->works.push_back(work);
  return work;
}

EpcclBackend::WorkPtr EpcclBackend::add_to_batch(bool is_send, const at::Tensor& tensor, int peer) {
  if (!batch_->messages)
    batch_->messages =
        std::make_unique<MessageBatch>(device_line(tensor.device()), rank_, sequence_++, timeout_->load());
  return batch_->messages->add(is_send, tensor, peer);
}

EpcclBackend::WorkPtr EpcclBackend::endCoalescing() {
  TORCH_CHECK(batch_, "epccl: no batch has begun");
  Batch batch = std::move(*batch_);
  batch_.reset();
  if (batch.messages) batch.works.push_back(batch.messages->launch());
  if (batch.works.size() == 1) return batch.works[0];
  return c10::make_intrusive<Together>(rank_, std::move(batch.works));
}

}  // namespace epccl_torch
