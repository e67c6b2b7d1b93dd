#include "perf/src/buffers.hpp"

#include <cstdlib>
#include <utility>

#include "perf/src/check.hpp"

namespace epccl::perf {

Result<Buffer> Buffer::allocate(size_t bytes, bool registered, Gpu* gpu) {
  constexpr size_t alignment = 64;
  const size_t whole = (bytes + guard_bytes + alignment - 1) / alignment * alignment;
  void* memory = nullptr;
  const bool by_library = registered && gpu == nullptr;
  if (by_library) {
    EPCCL_TRY(api_status("epcclMemAlloc", epcclMemAlloc(&memory, whole))
                  .with_context(fmt::format("{} bytes", whole)));
  } else {
    memory = std::aligned_alloc(alignment, whole);
    if (memory == nullptr) return error(Code::system_error, "no memory for a buffer of {} bytes", whole);
  }
  Buffer buffer;
  buffer.memory_ = {static_cast<std::byte*>(memory), FreeBuffer{by_library}};
  buffer.size_ = bytes;
  poison({buffer.memory_.get(), whole});
  if (gpu == nullptr) return buffer;
  EPCCL_ASSIGN(std::byte* const on_gpu, gpu->allocate(whole, registered));
  buffer.on_gpu_ = {on_gpu, FreeBuffer{registered, gpu}};
  buffer.gpu_ = gpu;
  EPCCL_TRY(buffer.upload());
  return buffer;
}

Status Buffer::upload() const {
  return gpu_ == nullptr ? Status{} : gpu_->copy(on_gpu_.get(), memory_.get(), size_ + guard_bytes);
}

Status Buffer::download() const {
  return gpu_ == nullptr ? Status{} : gpu_->copy(memory_.get(), on_gpu_.get(), size_ + guard_bytes);
}

void FreeBuffer::operator()(std::byte* memory) const {
  if (gpu != nullptr) {
    gpu->free(memory, registered);
  } else if (registered) {
    static_cast<void>(epcclMemFree(memory));
  } else {
    std::free(memory);
  }
}

Result<Registration> Registration::make(Communicator& communicator, const Buffer& buffer) {
  void* handle = nullptr;
  const epcclResult_t result = epcclCommRegister(communicator.get(), buffer.there(),
                                                 buffer.bytes().size() + Buffer::guard_bytes, &handle);
  EPCCL_TRY(api_status("epcclCommRegister", result, communicator.get()));
  return Registration(communicator, handle);
}

Registration::Registration(Registration&& other) noexcept
    : communicator_(std::exchange(other.communicator_, nullptr)),
      handle_(std::exchange(other.handle_, nullptr)) {}

Registration::~Registration() {
  // An aborted communicator has forgotten its registrations.
  if (communicator_ != nullptr && communicator_->get() != nullptr)
    static_cast<void>(epcclCommDeregister(communicator_->get(), handle_));
}

}  // namespace epccl::perf
