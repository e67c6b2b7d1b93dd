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
  std::vector<kernels::SmallCopy> runs;
  const auto launch = [&]() -> Status {
    Status status = parts_.kernels.launch(kernels::copies_launch(runs, {}, nullptr, bounded_grid()), stream_);
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
      if (runs.size() == kernels::max_small_copies) EPCCL_TRY(launch());
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
  if (work.sources.empty() || std::max(work.sources.size(), work.also.size()) > kernels::max_reduce_sources)
    return error(Code::invalid_argument,
                 "GPU {}: a reduction of {} sources or places, where 1 to {} are possible", gpu,
                 std::max(work.sources.size(), work.also.size()), kernels::max_reduce_sources);
  EPCCL_TRY(is_capturing().status());
  EPCCL_CURRENT(parts_.context);
  return parts_.kernels.launch(
      kernels::reduce_launch(work.reduction, work.sources, work.final, work.destination, work.elements,
                             bounded_grid(), nullptr, work.also),
      stream_);
}

Status StreamQueue::reduce(const ReduceWork& work) {
  const TimedOperation timed(parts_.context, stream_, WorkKind::kernel);
  return keep(reduce_now(work));
}

Status StreamQueue::launch_now(const kernels::Kernel& kernel, uint32_t blocks, uint32_t threads,
                               const void* parameters) {
  EPCCL_TRY(failure_);
  if (kind_ == QueueKind::copy_engine)
    return error(Code::invalid_usage, "GPU {}: a copy engine has no kernels", parts_.context.ordinal());
  EPCCL_CURRENT(parts_.context);
  return parts_.kernels.start(kernel, blocks, threads, parameters, stream_);
}

Status StreamQueue::launch(const kernels::Kernel& kernel, uint32_t blocks, uint32_t threads,
                           const void* parameters) {
  const TimedOperation timed(parts_.context, stream_, WorkKind::kernel);
  return keep(launch_now(kernel, blocks, threads, parameters));
}

// What the stream wrote before is visible to all of the system that see the value.
Status StreamQueue::post(SignalWord& word, uint64_t value) {
  const WordPost post{&word, value};
  EPCCL_CURRENT(parts_.context);
  return post_after_by_driver({}, {&post, 1});
}

Status StreamQueue::wait(const SignalWord& word, uint64_t value) {
  const WordValue wait{&word, value};
  return post_after({&wait, 1}, {});
}

// By one call of the driver, whose lock all threads of a process share.
Status StreamQueue::post_after(std::span<const WordValue> waits, std::span<const WordPost> posts) {
  const TimedOperation timed(parts_.context, stream_, WorkKind::signal);
  EPCCL_CURRENT(parts_.context);
  const bool is_near = std::ranges::any_of(waits, [](const WordValue& wait) { return wait.near != nullptr; });
  if (is_near && has_kernels() && posts.size() <= kernels::max_raised_words)
    return post_after_by_kernel(waits, posts);
  return post_after_by_driver(waits, posts);
}

Result<uint64_t*> StreamQueue::address_of(const SignalWord* word) const {
  EPCCL_ASSIGN(const CUdeviceptr address, parts_.words.find(word));
  return reinterpret_cast<uint64_t*>(address);  // NOLINT(performance-no-int-to-ptr): the GPU's
}

// As many kernels as it takes to name all words.
Status StreamQueue::post_after_by_kernel(std::span<const WordValue> waits, std::span<const WordPost> posts) {
  while (!waits.empty()) {
    kernels::WordParameters words;
    const auto now = waits.first(std::min<size_t>(waits.size(), kernels::max_awaited_words));
    waits = waits.subspan(now.size());
    for (const WordValue& wait : now) {
      EPCCL_ASSIGN(uint64_t* const word, address_of(wait.word));
      words.awaited[words.awaited_count++] = {word, reinterpret_cast<const uint64_t*>(wait.near),
                                              wait.at_least};
    }
    for (const WordPost& post : waits.empty() ? posts : std::span<const WordPost>()) {
      EPCCL_ASSIGN(uint64_t* const word, address_of(post.word));
      words.raised[words.raised_count++] = {word, reinterpret_cast<uint64_t*>(post.near), post.value};
    }
    EPCCL_TRY(keep(parts_.kernels.launch(kernels::words_launch(words), stream_)));
  }
  return {};
}

Status StreamQueue::post_after_by_driver(std::span<const WordValue> waits, std::span<const WordPost> posts) {
  std::vector<CUstreamBatchMemOpParams> operations;
  operations.reserve(waits.size() + 2 * posts.size());
  for (const WordValue& wait : waits) {
    auto& operation = operations.emplace_back().waitValue;
    operation.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    EPCCL_ASSIGN(operation.address, parts_.words.find(wait.word));
    operation.value64 = wait.at_least;
    operation.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  const auto write = [&](CUdeviceptr address, uint64_t value) {
    auto& operation = operations.emplace_back().writeValue;
    operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operation.address = address;
    operation.value64 = value;
    operation.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  };
  for (const WordPost& post : posts) {
    EPCCL_ASSIGN(const CUdeviceptr address, parts_.words.find(post.word));
    if (post.near != nullptr) write(reinterpret_cast<CUdeviceptr>(post.near), post.value);
    write(address, post.value);
  }
  return queue_values(operations);
}

// One after the other where the driver has no lists of them.
Status StreamQueue::queue_values(std::span<CUstreamBatchMemOpParams> operations) {
  const Context& context = parts_.context;
  const Driver& driver = context.driver();
  const bool is_list = driver.batch_values && operations.size() > 1;
  constexpr size_t most_at_once = 255;  // the driver's limit
  for (size_t first = 0; is_list && first < operations.size(); first += most_at_once) {
    const auto count = static_cast<unsigned>(std::min(most_at_once, operations.size() - first));
    EPCCL_TRY(keep(context.call(driver.batch_values, stream_, count, operations.data() + first, 0U)));
  }
  if (is_list) return {};
  for (const CUstreamBatchMemOpParams& each : operations) {
    const auto& wait = each.waitValue;
    const auto& write = each.writeValue;
    EPCCL_TRY(
        keep(each.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64
                 ? context.call(driver.wait_value, stream_, wait.address, wait.value64, wait.flags)
                 : context.call(driver.write_value, stream_, write.address, write.value64, write.flags)));
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
