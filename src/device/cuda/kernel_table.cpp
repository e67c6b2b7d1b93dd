#include "device/cuda/kernel_table.hpp"

#include <algorithm>
#include <array>

#include "base/log.hpp"

namespace epccl::device::cuda {

namespace {

GpuSpeeds find_speeds(const Context& context) {
  const auto number = [&](CUdevice_attribute which) { return std::max(context.attribute_or_zero(which), 0); };
  constexpr double bits = 8, edges = 2;  // of a byte; of a clock that transfer data
  GpuSpeeds speeds;
  speeds.multiprocessors = static_cast<uint32_t>(number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  speeds.memory = edges * 1e3 * number(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                  number(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / bits;
  speeds.link = link_speed(number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                           number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return speeds;
}

}  // namespace

KernelTable::KernelTable(const Context& context)
    : context_(context), speeds_(find_speeds(context)), status_(load()) {
  if (!status_.ok())
    log::warn(log::init, -1,
              "GPU {} has no kernels: copies work as ever, the host makes sums, dispatch and combine, and "
              "nothing is captured: {}",
              context.ordinal(), status_.message());
}

// A driver runs code of toolkits of its own major version, and of older ones.
Status KernelTable::refused(kernels::Image image, Status why) const {
  constexpr int per_major = 1000, major = CUDA_VERSION / per_major * per_major;
  const std::string needed =
      context_.driver().version / per_major < CUDA_VERSION / per_major
          ? fmt::format(" (they need one of CUDA {} or newer, or a build with an older nvcc)",
                        version_text(major))
          : "";
  return std::move(why).with_context(
      fmt::format("loading the {} kernels, which CUDA {} compiled for sm_80, sm_90, sm_100 and what follows, "
                  "on sm_{}{} with a driver of CUDA {}{}",
                  to_string(image), version_text(CUDA_VERSION),
                  context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                  context_.attribute_or_zero(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                  version_text(context_.driver().version), needed));
}

// A driver that loads functions late may refuse them as late.
Status KernelTable::load(const kernels::Kernel& kernel, CUmodule module) {
  const Driver& driver = context_.driver();
  CUfunction function = nullptr;
  EPCCL_TRY(context_.call(driver.module_function, &function, module, kernel.name));
  // Where the driver loads functions when they are first used, that is now. Older ones do so when they are asked about.
  if (driver.function_load) EPCCL_TRY(context_.call(driver.function_load, function));
  int registers = 0;
  EPCCL_TRY(context_.call(driver.function_attribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  int resident = 0;
  EPCCL_TRY(context_.call(driver.resident_blocks, &resident, function,
                          static_cast<int>(kernels::block_threads), size_t{0}));
  functions_[kernel.name] = function;
  residency_.set(kernel, static_cast<uint32_t>(std::max(resident, 0)));
  return {};
}

Status KernelTable::load() {
  EPCCL_CURRENT(context_);
  const Driver& driver = context_.driver();
  std::array<CUmodule, std::size(kernels::all_images)> modules{};
  for (const kernels::Image image : kernels::all_images) {
    const auto bytes = bytes_of(image);
    if (bytes.empty()) return error(Code::device_error, "EPCCL was built without nvcc");
    // Kept as long as the context.
    if (Status status = context_.call(driver.module_load, &modules[static_cast<size_t>(image)],
                                      static_cast<const void*>(bytes.data()));
        !status.ok())
      return refused(image, std::move(status));
  }
  for (const kernels::Kernel& kernel : kernels::all_kernels())
    if (Status status = load(kernel, modules[static_cast<size_t>(kernel.image)]); !status.ok())
      return refused(kernel.image, std::move(status).with_context(kernel.name));
  return {};
}

Status KernelTable::start(const kernels::Kernel& kernel, uint32_t blocks, uint32_t threads,
                          const void* parameters, CUstream stream) const {
  EPCCL_TRY(status_);
  const auto it = functions_.find(std::string_view(kernel.name));
  if (it == functions_.end()) return error(Code::internal_error, "there is no kernel {}", kernel.name);
  std::array<void*, 1> arguments{const_cast<void*>(parameters)};  // only read
  return context_
      .call(context_.driver().launch, it->second, blocks, 1U, 1U, threads, 1U, 1U, 0U, stream,
            arguments.data(), static_cast<void**>(nullptr))
      .with_context(kernel.name);
}

}  // namespace epccl::device::cuda
