#include "device/cuda/copies.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "device/held_streams.hpp"

namespace epccl::device::cuda {
namespace {

// No CUDA before this one can capture a list of copies into a graph.
constexpr int may_capture_lists = 13050;
// A few rows are a list; many are one copy with a pitch.
constexpr uint32_t rows_in_a_list = 16;
// Inside a GPU engines begin sooner, compute cores copy faster: above this they are through sooner, too (NVIDIA/cudf#23675).
constexpr uint64_t most_for_engines = 128 << 10;

CUdeviceptr address_of(const std::byte* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

bool is_one_run(const CopyWork& work) {
  return work.rows == 1 || (work.destination_stride == work.bytes && work.source_stride == work.bytes);
}

// Drivers from CUDA 13.1 on take the hint as an order, and one engine copies inside a GPU at a fraction of the memory's rate.
CUmemcpyFlags flag_of(const CopyWork& work, uint64_t bytes, const CopyTarget& target) {
  const bool by_cores = work.may_use_cores && bytes > most_for_engines;
  return target.beside_compute && !by_cores ? CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE
                                            : CU_MEMCPY_FLAG_DEFAULT;
}

/// A stream that is captured, and some pinned memory.
class TrialCapture {
 public:
  explicit TrialCapture(const Driver& driver) : driver_(driver) {}
  TrialCapture(const TrialCapture&) = delete;
  TrialCapture& operator=(const TrialCapture&) = delete;
  ~TrialCapture() {
    if (is_capturing_) end();
    if (stream_ != nullptr) driver_.stream_destroy(stream_);
    if (memory_ == nullptr) return;
    HeldStreams::when_none([free = driver_.host_free, memory = memory_] { free(memory); });
  }
  bool begin(size_t bytes) {
    is_capturing_ =
        driver_.host_alloc(&memory_, bytes, 0U) == CUDA_SUCCESS &&
        driver_.stream_create(&stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING), 0) == CUDA_SUCCESS &&
        driver_.begin_capture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
    return is_capturing_;
  }
  /// Whether there was a graph.
  bool end() {
    is_capturing_ = false;
    CUgraph graph = nullptr;
    const CUresult result = driver_.end_capture(stream_, &graph);
    if (graph != nullptr) driver_.graph_destroy(graph);
    return result == CUDA_SUCCESS && graph != nullptr;
  }
  CUstream stream() const { return stream_; }
  std::byte* memory() const { return static_cast<std::byte*>(memory_); }

 private:
  const Driver& driver_;
  void* memory_ = nullptr;
  CUstream stream_ = nullptr;
  bool is_capturing_ = false;
};

}  // namespace

Copier::Copier(const Context& context)
    : context_(context),
      max_pitch_(static_cast<uint64_t>(context.attribute_or_zero(CU_DEVICE_ATTRIBUTE_MAX_PITCH))),
      batches_(context.driver().has_batch_copies()),
      captures_lists_(can_capture_lists()) {}

// Tried in a graph that nobody wants: where a list is refused in the middle of a program's, that is spoilt.
bool Copier::can_capture_lists() const {
  const Driver& driver = context_.driver();
  if (driver.version < may_capture_lists || !batches_ || !driver.begin_capture || !driver.end_capture ||
      !driver.graph_destroy)
    return false;
  const CurrentContext current(context_);
  constexpr size_t bytes = 16;
  TrialCapture trial(driver);
  if (!current.status().ok() || !trial.begin(4 * bytes)) return false;
  // Those with the hint, and those without.
  Runs runs;
  runs.add(trial.memory(), trial.memory() + bytes, bytes, CU_MEMCPY_FLAG_DEFAULT);
  runs.add(trial.memory() + 2 * bytes, trial.memory() + 3 * bytes, bytes,
           CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
  const bool is_queued = batch(runs, {trial.stream(), true, false}) == CUDA_SUCCESS;
  return trial.end() && is_queued;
}

void Copier::Runs::add(const std::byte* destination, const std::byte* source, uint64_t size,
                       CUmemcpyFlags flag) {
  destinations.push_back(address_of(destination));
  sources.push_back(address_of(source));
  bytes.push_back(size);
  flags.push_back(flag);
}

bool Copier::can_batch(const CopyTarget& target) const {
  return batches_.load(std::memory_order_relaxed) && target.stream != nullptr &&
         target.stream != CU_STREAM_LEGACY && (!target.is_capturing || captures_lists_);
}

Status Copier::copy(std::span<const CopyWork> copies, const CopyTarget& target) {
  Runs runs;
  for (const CopyWork& work : copies) {
    if (work.bytes == 0 || work.rows == 0) continue;
    if (is_one_run(work)) {
      const uint64_t bytes = work.bytes * work.rows;
      runs.add(work.destination, work.source, bytes, flag_of(work, bytes, target));
      continue;
    }
    const uint64_t pitch = std::max(work.destination_stride, work.source_stride);
    const bool has_pitch =
        std::min(work.destination_stride, work.source_stride) >= work.bytes && pitch <= max_pitch_;
    if (has_pitch && (work.rows > rows_in_a_list || !can_batch(target))) {
      EPCCL_TRY(copy_rows(work, target.stream));
      continue;
    }
    for (uint32_t row = 0; row < work.rows; ++row)
      runs.add(work.destination + row * work.destination_stride, work.source + row * work.source_stride,
               work.bytes, flag_of(work, work.bytes, target));
  }
  return runs.bytes.empty() ? Status{} : copy_runs(runs, target);
}

Status Copier::copy_rows(const CopyWork& work, CUstream stream) const {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address_of(work.source);
  copy.srcPitch = work.source_stride;
  copy.dstDevice = address_of(work.destination);
  copy.dstPitch = work.destination_stride;
  copy.WidthInBytes = work.bytes;
  copy.Height = work.rows;
  return context_.call(context_.driver().memcpy_2d, static_cast<const CUDA_MEMCPY2D*>(&copy), stream);
}

Status Copier::copy_runs(Runs& runs, const CopyTarget& target) {
  // One copy alone is a list only for the hint.
  if (!can_batch(target) || (runs.bytes.size() == 1 && runs.flags[0] == CU_MEMCPY_FLAG_DEFAULT))
    return copy_each(runs, target.stream);
  const CUresult result = batch(runs, target);
  if (result == CUDA_SUCCESS) return {};
  Status failed = driver_error(context_.driver(), "cuMemcpyBatchAsync", result, context_.ordinal());
  if (result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER) return failed;
  if (batches_.exchange(false))
    log::info(log::init, -1, "copies are queued one by one from now on: {}", failed.message());
  return copy_each(runs, target.stream);
}

Status Copier::copy_each(const Runs& runs, CUstream stream) const {
  for (size_t i = 0; i < runs.bytes.size(); ++i)
    EPCCL_TRY(context_.call(context_.driver().memcpy, runs.destinations[i], runs.sources[i], runs.bytes[i],
                            stream));
  return {};
}

// Attributes are those of a copy and of all that follow, up to the next one that has its own.
CUresult Copier::batch(Runs& runs, const CopyTarget& target) const {
  std::vector<CUmemcpyAttributes> attributes;
  std::vector<size_t> firsts;
  for (size_t i = 0; i < runs.flags.size(); ++i) {
    if (i > 0 && runs.flags[i] == runs.flags[i - 1]) continue;
    CUmemcpyAttributes& from_here = attributes.emplace_back();
    from_here.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    from_here.flags = runs.flags[i];
    firsts.push_back(i);
  }
  size_t failed = 0;
  const Driver& driver = context_.driver();
  if (driver.memcpy_batch)
    return driver.memcpy_batch(runs.destinations.data(), runs.sources.data(), runs.bytes.data(),
                               runs.bytes.size(), attributes.data(), firsts.data(), firsts.size(),
                               target.stream);
  return driver.memcpy_batch_with_fail_index(runs.destinations.data(), runs.sources.data(), runs.bytes.data(),
                                             runs.bytes.size(), attributes.data(), firsts.data(),
                                             firsts.size(), &failed, target.stream);
}

std::string Copier::description() const {
  if (batches_.load(std::memory_order_relaxed)) return "copies in lists";
  return "copies one by one";
}

}  // namespace epccl::device::cuda
