#include "device/cuda/queue.hpp"

#include <algorithm>
#include <vector>

#include "device/cuda/event.hpp"
#include "device/cuda/timing.hpp"

namespace epccl::device::cuda {
namespace {

Result<CUevent> event_of(const QueueEvent& event, int ordinal) {
  const auto* mine = dynamic_cast<const Event*>(&event);
  if (mine == nullptr)
    return error(Code::invalid_usage, "an event of another device on a queue of GPU {}", ordinal);
  return mine->handle();
}

bool is_special(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/// Of a stream of a green context: the primary one. Older drivers that have green contexts do not tell it.
Result<CUcontext> context_of(const Context& context, CUstream stream) {
  CUcontext owner = nullptr;
  CUgreenCtx green = nullptr;
  const Driver& driver = context.driver();
  EPCCL_TRY(driver.stream_contexts ? context.call(driver.stream_contexts, stream, &owner, &green)
                                   : context.call(driver.stream_context, stream, &owner));
  return owner;
}

}  // namespace

Result<std::unique_ptr<Queue>> StreamQueue::make(const QueueParts& parts, QueueKind kind) {
  const Context& context = parts.context;
  EPCCL_CURRENT(context);
  EPCCL_ASSIGN(const int priority, parts.priorities.own());
  CUstream stream = nullptr;
  EPCCL_TRY(context.call(context.driver().stream_create, &stream,
                         static_cast<unsigned>(CU_STREAM_NON_BLOCKING), priority));
  return std::unique_ptr<Queue>(new StreamQueue(parts, kind, stream, true));  // private constructor
}

Result<std::unique_ptr<Queue>> StreamQueue::borrow(const QueueParts& parts, CUstream stream) {
  const Context& context = parts.context;
  EPCCL_CURRENT(context);
  if (!is_special(stream)) {
    EPCCL_ASSIGN(const CUcontext owner, context_of(context, stream));
    if (owner != context.handle())
      return error(Code::invalid_argument, "stream {} is of another context ({}) than GPU {}'s primary one",
                   static_cast<const void*>(stream),
                   context.driver().stream_contexts
                       ? "another GPU?"
                       : "another GPU, or a green context, for which the driver is too old?",
                   context.ordinal());
    parts.priorities.look_at(stream);
  }
  return std::unique_ptr<Queue>(new StreamQueue(parts, QueueKind::compute, stream, false));
}

StreamQueue::~StreamQueue() {
  if (!is_owned_) return;
  const Context& context = parts_.context;
  const CurrentContext current(context);
  // A stream that is part of a capture cannot be waited for; to destroy it ends the capture with an error of its own.
  const auto capture = is_capturing();
  if (capture.ok() && !*capture) context.driver().stream_synchronize(stream_);
  context.driver().stream_destroy(stream_);
}

Status StreamQueue::keep(Status status) {
  if (!status.ok() && failure_.ok()) failure_ = status;
  return status;
}

Result<bool> StreamQueue::is_capturing() const {
  const Context& context = parts_.context;
  EPCCL_CURRENT(context);
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = context.driver().stream_is_capturing(stream_, &capture);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return error(
        Code::invalid_usage,
        "the NULL stream of GPU {} cannot be used while a stream that waits for it is being captured",
        context.ordinal());
  if (result != CUDA_SUCCESS)
    return driver_error(context.driver(), context.driver().stream_is_capturing.name, result,
                        context.ordinal());
  if (capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    return error(Code::invalid_usage, "the capture of a stream of GPU {} failed before", context.ordinal());
  return capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

bool StreamQueue::capturing() const {
  const auto capture = is_capturing();
  return capture.ok() && *capture;
}

Result<uint64_t> StreamQueue::capture() const {
  EPCCL_ASSIGN(const bool is_captured, is_capturing());
  if (!is_captured) return uint64_t{0};
  EPCCL_CURRENT(parts_.context);
  EPCCL_ASSIGN(const Capture capture, capture_of(parts_.context, stream_));
  return capture.id;
}

Status StreamQueue::keep_in_graph(std::shared_ptr<const void> object) {
  EPCCL_CURRENT(parts_.context);
  EPCCL_ASSIGN(const Capture capture, capture_of(parts_.context, stream_));
  return parts_.objects.keep(parts_.context, capture.graph, std::move(object));
}

Status StreamQueue::refuse_while_capturing(const char* what) const {
  EPCCL_ASSIGN(const bool is_captured, is_capturing());
  if (!is_captured) return {};
  return error(Code::invalid_usage, "the stream of GPU {} is being captured into a graph, so {}",
               parts_.context.ordinal(), what);
}

Status StreamQueue::copy_now(std::span<const CopyWork> copies) {
  EPCCL_TRY(failure_);
  EPCCL_ASSIGN(const bool is_captured, is_capturing());
  EPCCL_CURRENT(parts_.context);
  if (kind_ == QueueKind::cores) return copy_by_cores(copies);
  return parts_.copier.copy(copies, {stream_, is_captured, kind_ == QueueKind::copy_engine});
}

// As few kernels as can name all of them.
Status StreamQueue::copy_by_cores(std::span<const CopyWork> copies) {
  std::vector<SmallCopy> runs;
  const auto launch = [&]() -> Status {
    Status status = parts_.kernels.launch(copies_launch(runs, {}, nullptr, bounded_grid()), stream_);
    runs.clear();
    return status;
  };
  for (const CopyWork& work : copies) {
    const bool is_one =
        work.rows == 1 || (work.destination_stride == work.bytes && work.source_stride == work.bytes);
    const uint32_t rows = is_one ? 1 : work.rows;
    for (uint32_t row = 0; row < rows && work.bytes > 0; ++row) {
      runs.push_back({work.source + row * work.source_stride,
                      work.destination + row * work.destination_stride,
                      is_one ? work.bytes * work.rows : work.bytes});
      if (runs.size() == max_small_copies) EPCCL_TRY(launch());
    }
  }
  return runs.empty() ? Status{} : launch();
}

Status StreamQueue::copy(std::span<const CopyWork> copies) {
  const TimedOperation timed(parts_.context, stream_,
                             kind_ == QueueKind::cores ? WorkKind::kernel : WorkKind::copy);
  return keep(copy_now(copies));
}

Status StreamQueue::reduce_now(const ReduceWork& work) {
  EPCCL_TRY(failure_);
  const int gpu = parts_.context.ordinal();
  if (kind_ == QueueKind::copy_engine)
    return error(Code::invalid_usage, "GPU {}: a copy engine cannot reduce", gpu);
  if (work.sources.empty() || std::max(work.sources.size(), work.also.size()) > max_reduce_sources)
    return error(Code::invalid_argument,
                 "GPU {}: a reduction of {} sources or places, where 1 to {} are possible", gpu,
                 std::max(work.sources.size(), work.also.size()), max_reduce_sources);
  EPCCL_TRY(is_capturing().status());
  EPCCL_CURRENT(parts_.context);
  return parts_.kernels.launch(reduce_launch(work.reduction, work.sources, work.final, work.destination,
                                             work.elements, bounded_grid(), nullptr, work.also),
                               stream_);
}

Status StreamQueue::reduce(const ReduceWork& work) {
  const TimedOperation timed(parts_.context, stream_, WorkKind::kernel);
  return keep(reduce_now(work));
}

Status StreamQueue::launch_now(const Kernel& kernel, uint32_t blocks, uint32_t threads,
                               const void* parameters) {
  EPCCL_TRY(failure_);
  if (kind_ == QueueKind::copy_engine)
    return error(Code::invalid_usage, "GPU {}: a copy engine has no kernels", parts_.context.ordinal());
  EPCCL_CURRENT(parts_.context);
  return parts_.kernels.start(kernel, blocks, threads, parameters, stream_);
}

Status StreamQueue::launch(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* parameters) {
  const TimedOperation timed(parts_.context, stream_, WorkKind::kernel);
  return keep(launch_now(kernel, blocks, threads, parameters));
}

Status StreamQueue::post(SignalWord& word, uint64_t value) {
  EPCCL_ASSIGN(const CUdeviceptr address, parts_.words.find(&word));
  EPCCL_CURRENT(parts_.context);
  // The default has the fence: what the stream wrote before is visible to all of the system that see the value.
  return keep(parts_.context.call(parts_.context.driver().write_value, stream_, address, cuuint64_t{value},
                                  static_cast<unsigned>(CU_STREAM_WRITE_VALUE_DEFAULT)));
}

Status StreamQueue::wait(const SignalWord& word, uint64_t value) {
  EPCCL_ASSIGN(const CUdeviceptr address, parts_.words.find(&word));
  const TimedOperation timed(parts_.context, stream_, WorkKind::signal);
  EPCCL_CURRENT(parts_.context);
  return keep(parts_.context.call(parts_.context.driver().wait_value, stream_, address, cuuint64_t{value},
                                  static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ)));
}

// By one call of the driver, whose lock all threads of a process share.
Status StreamQueue::post_after(std::span<const WordValue> waits, std::span<const WordPost> posts) {
  const Driver& driver = parts_.context.driver();
  if (!driver.batch_values) return Queue::post_after(waits, posts);
  std::vector<CUstreamBatchMemOpParams> operations(waits.size() + posts.size());
  for (size_t i = 0; i < waits.size(); ++i) {
    auto& wait = operations[i].waitValue;
    EPCCL_ASSIGN(wait.address, parts_.words.find(waits[i].word));
    wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    wait.value64 = waits[i].at_least;
    wait.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  for (size_t i = 0; i < posts.size(); ++i) {
    auto& write = operations[waits.size() + i].writeValue;
    EPCCL_ASSIGN(write.address, parts_.words.find(posts[i].word));
    write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write.value64 = posts[i].value;
    write.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  }
  const TimedOperation timed(parts_.context, stream_, WorkKind::signal);
  EPCCL_CURRENT(parts_.context);
  constexpr size_t most_at_once = 255;  // the driver's limit
  for (size_t first = 0; first < operations.size(); first += most_at_once) {
    const auto count = static_cast<unsigned>(std::min(most_at_once, operations.size() - first));
    EPCCL_TRY(keep(parts_.context.call(driver.batch_values, stream_, count, operations.data() + first, 0U)));
  }
  return {};
}

Status StreamQueue::record(QueueEvent& event) {
  EPCCL_ASSIGN(const CUevent handle, event_of(event, parts_.context.ordinal()));
  EPCCL_CURRENT(parts_.context);
  return keep(parts_.context.call(parts_.context.driver().event_record, handle, stream_));
}

Status StreamQueue::wait(const QueueEvent& event) {
  EPCCL_ASSIGN(const CUevent handle, event_of(event, parts_.context.ordinal()));
  EPCCL_CURRENT(parts_.context);
  return keep(parts_.context.call(parts_.context.driver().stream_wait_event, stream_, handle,
                                  static_cast<unsigned>(CU_EVENT_WAIT_DEFAULT)));
}

Status StreamQueue::synchronize() {
  EPCCL_TRY(refuse_while_capturing("it cannot be waited for"));
  EPCCL_CURRENT(parts_.context);
  EPCCL_TRY(keep(parts_.context.call(parts_.context.driver().stream_synchronize, stream_)));
  return failure_;
}

Result<bool> StreamQueue::idle() {
  EPCCL_TRY(refuse_while_capturing("it is neither idle nor busy"));
  EPCCL_CURRENT(parts_.context);
  const Driver& driver = parts_.context.driver();
  const CUresult result = driver.stream_query(stream_);
  if (result == CUDA_SUCCESS) return true;
  if (result == CUDA_ERROR_NOT_READY) return false;
  return keep(driver_error(driver, driver.stream_query.name, result, parts_.context.ordinal()));
}

}  // namespace epccl::device::cuda
