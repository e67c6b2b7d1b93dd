#include "device/gpus.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "base/log.hpp"
#include "base/never_destroyed.hpp"
#include "device/cuda/event.hpp"
#include "device/cuda/lending.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/queue.hpp"

namespace epccl::device {
namespace {

using namespace epccl::device::cuda;

class CudaDevice : public Device {
 public:
  explicit CudaDevice(Context context)
      : context_(context),
        memory_(context_),
        words_(context_),
        copier_(context_),
        lending_(context_),
        kernels_(context_),
        priorities_(context_) {
    std::array<char, 128> name{};
    context_.driver().device_name(name.data(), static_cast<int>(name.size()) - 1, context_.device());
    name_ = name.data();
    engines_ = std::max(context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT), 1);
    has_mps_ = context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_MPS_ENABLED) != 0;
    ends_long_kernels_ = context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT) != 0;
  }

  const Context& context() const { return context_; }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  int ordinal() const override { return context_.ordinal(); }
  std::string description() const override {
    return fmt::format("{}, {} copy engines, CUDA {}, {}", name_, engines_,
                       version_text(context_.driver().version), copier_.description());
  }
  int copy_engines() const override { return engines_; }
  int max_reduce_sources() const override { return static_cast<int>(kernels::max_reduce_sources); }
  uint64_t place() const override { return memory_.place(); }
  bool serves_processes_at_once() const override { return has_mps_; }
  bool can_wait_by_kernels() const override { return kernels_.status().ok() && !ends_long_kernels_; }
  // Of CUDA IPC that is not defined.
  bool outlives_its_owner(const MemoryHandle& handle) const override {
    return static_cast<HandleForm>(handle.form) == HandleForm::descriptor;
  }

  bool can_copy_by_cores() const override { return kernels_.status().ok(); }
  int fewest_blocks(const Demand& demand) const override {
    return static_cast<int>(kernels_.fewest_blocks(demand));
  }

  Result<void*> allocate(MemoryKind kind, uint64_t bytes) override { return memory_.allocate(kind, bytes); }
  Status free(void* address) override { return memory_.free(address); }
  std::optional<MemoryInfo> info(const void* address) const override { return memory_.info(address); }
  using Device::export_memory;
  Result<MemoryHandle> export_memory(const void* address, uint64_t bytes,
                                     const std::vector<pid_t>* readers) const override {
    return memory_.describe(address, bytes, readers);
  }
  Status can_export(const void* address, uint64_t bytes) const override {
    return memory_.can_describe(address, bytes);
  }
  void closed_by(pid_t reader, uint64_t frees) override { memory_.closed_by(reader, frees); }
  void hear_of_frees(const MemoryHandle& handle, std::span<const MemoryHandle* const> alive) override {
    cuda::hear_of_frees(handle, alive);
  }
  bool has_closed_what_was_freed(const MemoryHandle& by) const override {
    return cuda::has_closed_what_was_freed(by);
  }
  Result<std::unique_ptr<MappedMemory>> import_memory(const MemoryHandle& handle) override {
    return memory_.map(handle);
  }

  Result<LentMemory> lend(const void* address, uint64_t bytes) const override {
    return lending_.lend(address, bytes);
  }
  Status admit_foreign_writes() const override { return lending_.admit_writes(); }
  uint64_t frees() const override { return memory_.frees(); }

  Status make_words_visible(void* memory, uint64_t bytes) override { return words_.add(memory, bytes); }
  void hide_words(void* memory, std::shared_ptr<const void> mapping) override {
    words_.remove(memory, std::move(mapping));
  }

  Result<std::unique_ptr<Queue>> make_queue(QueueKind kind) override {
    return StreamQueue::make(queue_parts(), kind);
  }
  bool is_null_stream(void* stream) const override { return stream == nullptr || stream == CU_STREAM_LEGACY; }
  Result<std::unique_ptr<Queue>> borrow_stream(void* stream) override {
    return StreamQueue::borrow(queue_parts(), static_cast<CUstream>(stream));
  }
  Result<std::unique_ptr<QueueEvent>> make_event() override { return Event::make(context_); }

  void let_go() override { objects_.let_go(); }

 private:
  QueueParts queue_parts() { return {context_, copier_, words_, kernels_, objects_, priorities_, held_}; }

  const Context context_;
  std::string name_;
  int engines_ = 1;
  bool has_mps_ = false, ends_long_kernels_ = false;
  Memory memory_;
  SignalWords words_;
  Copier copier_;
  const Lending lending_;
  const KernelTable kernels_;
  const Priorities priorities_;
  HeldQueues held_{context_.ordinal()};
  GraphObjects objects_;
};

struct Devices {
  std::mutex mutex;
  std::vector<std::unique_ptr<CudaDevice>> by_ordinal;
};

Devices& devices() {
  static NeverDestroyed<Devices> instance;
  return *instance;
}

const Context* any_known_context() {
  const std::lock_guard lock(devices().mutex);
  for (const auto& device : devices().by_ordinal)
    if (device != nullptr) return &device->context();
  return nullptr;
}

// Any of the process will do to ask about a pointer. Where the program has used no GPU yet there is no memory of one, and none is
// opened to find that out.
const Context* any_context(const Driver& driver) {
  if (const Context* known = any_known_context()) return known;
  int count = 0;
  if (driver.device_count(&count) != CUDA_SUCCESS) return nullptr;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    unsigned flags = 0;
    int active = 0;
    if (driver.primary_context_state(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0) continue;
    if (cuda_device(ordinal).ok()) return any_known_context();
  }
  return nullptr;
}

/// As cuda_device_count(); an error where there is no GPU of that number.
Result<int> count_with(int ordinal) {
  EPCCL_ASSIGN(const int count, cuda_device_count());
  if (ordinal < 0 || ordinal >= count)
    return error(Code::device_error, "there is no GPU {}: the CUDA driver knows {}", ordinal, count);
  return count;
}

}  // namespace

Result<int> cuda_device_count() {
  EPCCL_ASSIGN(const Driver* driver, cuda::driver());
  int count = 0;
  if (const CUresult result = driver->device_count(&count); result != CUDA_SUCCESS)
    return driver_error(*driver, driver->device_count.name, result, -1);
  return count;
}

Result<PciPlace> cuda_pci_place(int ordinal) {
  EPCCL_TRY(count_with(ordinal).status());
  EPCCL_ASSIGN(const Driver* driver, cuda::driver());
  CUresult result = CUDA_SUCCESS;
  CUdevice gpu = 0;
  const auto part = [&](CUdevice_attribute which) {
    int value = 0;
    if (result == CUDA_SUCCESS) result = driver->device_attribute(&value, which, gpu);
    return value;
  };
  result = driver->device_get(&gpu, ordinal);
  PciPlace place;
  place.domain = static_cast<uint32_t>(part(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
  place.bus = static_cast<uint8_t>(part(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
  place.device = static_cast<uint8_t>(part(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  if (result != CUDA_SUCCESS) return driver_error(*driver, driver->device_attribute.name, result, ordinal);
  return place;
}

Result<Device*> cuda_device(int ordinal) {
  EPCCL_ASSIGN(const int count, count_with(ordinal));
  const std::lock_guard lock(devices().mutex);
  auto& known = devices().by_ordinal;
  if (known.size() < static_cast<size_t>(count)) known.resize(static_cast<size_t>(count));
  auto& device = known[static_cast<size_t>(ordinal)];
  if (device == nullptr) {
    EPCCL_ASSIGN(Context context, Context::retain(**cuda::driver(), ordinal));
    device = std::make_unique<CudaDevice>(context);
    log::info(log::init, -1, "GPU {}: {}", ordinal, device->description());
  }
  return static_cast<Device*>(device.get());
}

int cuda_driver_version() {
  const Driver* driver = possible_driver();
  return driver == nullptr ? 0 : driver->version;
}

bool cuda_possible() {
  return possible_driver() != nullptr;
}

std::optional<int> current_cuda_device() {
  const Driver* driver = possible_driver();
  CUcontext context = nullptr;
  if (driver == nullptr || driver->context_current(&context) != CUDA_SUCCESS || context == nullptr)
    return std::nullopt;
  CUdevice device = 0;
  if (driver->context_device(&device) != CUDA_SUCCESS) return std::nullopt;
  return device;  // a CUdevice is the ordinal
}

Status set_current_cuda_device(int ordinal) {
  EPCCL_TRY(cuda_device(ordinal).take_status());
  const std::lock_guard lock(devices().mutex);
  const Context& context = devices().by_ordinal[static_cast<size_t>(ordinal)]->context();
  return context.call(context.driver().context_push, context.handle());
}

std::optional<MemoryInfo> cuda_memory_at(const void* address) {
  const Driver* driver = possible_driver();
  if (driver == nullptr || address == nullptr) return std::nullopt;
  std::optional<PointerFacts> facts;
  // A thread that has used no GPU has no context.
  if (find_pointer(*driver, address, facts) == CUDA_ERROR_INVALID_CONTEXT)
    if (const Context* context = any_context(*driver)) facts = find_pointer(*context, address);
  if (!facts) return std::nullopt;
  return info_of(*facts);
}

bool is_pinned_memory(const void* address) {
  const Driver* driver = possible_driver();
  if (driver == nullptr || address == nullptr) return false;
  CUmemorytype type{};
  const auto ask = [&] {
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* value = &type;
    return driver->pointer_attributes(1, &attribute, &value, reinterpret_cast<CUdeviceptr>(address));
  };
  CUresult result = ask();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    const Context* context = any_context(*driver);
    if (context == nullptr) return false;
    const CurrentContext current(*context);
    result = ask();
  }
  return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST;
}

}  // namespace epccl::device
