// Streams and events, captured ones too.
#include <algorithm>
#include <chrono>

#include "looks.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

constexpr int lowest_priority = 0;

int highest_priority() {
  return static_cast<int>(setting("highest_priority", -5));  // as of the GPUs of today
}

/// A channel of its own, or, with FAKE_CUDA_CHANNELS, the next of those that streams of its priority share.
std::shared_ptr<Channel> channel_for(CUctx_st* context, int priority) {
  static const int count = environment("FAKE_CUDA_CHANNELS", 0);
  if (count == 0) return std::make_shared<Channel>();
  const std::lock_guard lock(state().mutex);
  auto& channels = context->channels[priority];
  channels.resize(static_cast<size_t>(count));
  auto& next = channels[context->made[priority]++ % channels.size()];
  if (next == nullptr) next = std::make_shared<Channel>();
  return next;
}

CUstream make_stream(CUctx_st* context, bool waits_for_null, std::shared_ptr<Channel> channel,
                     int priority = lowest_priority) {
  auto* stream = new CUstream_st;  // NOLINT: as the driver's
  stream->context = context;
  stream->waits_for_null = waits_for_null;
  stream->channel = std::move(channel);
  stream->priority = priority;
  return stream;
}

void enqueue(CUstream stream, std::function<CUresult()> step) {
  {
    const std::lock_guard lock(stream->mutex);
    ++stream->submitted;
  }
  stream->channel->add(stream, std::move(step));
}

CUresult wait_until(CUstream stream, uint64_t count) {
  std::unique_lock lock(stream->mutex);
  stream->changed.wait(lock, [&] { return stream->completed >= count; });
  return CUDA_SUCCESS;
}

uint64_t submitted(CUstream stream) {
  const std::lock_guard lock(stream->mutex);
  return stream->submitted;
}

/// The legacy NULL stream and the streams that wait for it wait for each other.
void order_with_null(CUstream stream) {
  const std::lock_guard lock(state().mutex);
  CUstream null_stream = stream->context->null_stream;
  if (null_stream == nullptr) return;
  if (stream == null_stream) {
    for (CUstream other : state().streams)
      if (other->context == stream->context && other->waits_for_null)
        enqueue(stream, [other, count = submitted(other)] { return wait_until(other, count); });
  } else if (stream->waits_for_null) {
    enqueue(stream, [null_stream, count = submitted(null_stream)] { return wait_until(null_stream, count); });
  }
}

CUresult spoil(CUstream stream, CUresult result) {
  stream->session->is_invalid = true;
  return result;
}

CUresult sleep_until(const std::function<bool()>& is_true) {
  look_until(is_true);
  return CUDA_SUCCESS;
}

}  // namespace

Channel::Channel() : thread([this] { run(); }) {}

Channel::~Channel() {
  {
    const std::lock_guard lock(mutex);
    is_ending = true;
  }
  changed.notify_all();
  thread.join();
}

void Channel::add(CUstream_st* stream, std::function<CUresult()> step) {
  {
    const std::lock_guard lock(mutex);
    steps.push_back({stream, std::move(step)});
  }
  changed.notify_all();
}

void Channel::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return is_ending || !steps.empty(); });
    if (steps.empty()) return;
    Step step = std::move(steps.front());
    steps.pop_front();
    lock.unlock();
    CUstream_st* stream = step.stream;
    // After an error nothing of the context runs any more.
    if (stream->context->error == CUDA_SUCCESS)
      if (const CUresult result = step.run(); result != CUDA_SUCCESS) stream->context->error = result;
    step.run = nullptr;  // what it holds ends outside of the lock
    {
      const std::lock_guard of_stream(stream->mutex);
      ++stream->completed;
      stream->changed.notify_all();  // within the lock: who waits may end the stream
    }
    lock.lock();
  }
}

/// The state is locked by the caller.
static bool is_of_a_thread(const CUctx_st& context, CUstream stream) {
  return std::ranges::any_of(context.thread_streams, [=](const auto& it) { return it.second == stream; });
}

CUresult resolve(CUstream& stream) {
  CUctx_st* context = nullptr;
  if (const CUresult result = need_context(&context); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    if (context->null_stream == nullptr)
      context->null_stream = make_stream(context, false, std::make_shared<Channel>());
    stream = context->null_stream;
  } else if (stream == CU_STREAM_PER_THREAD) {
    CUstream& mine = context->thread_streams[std::this_thread::get_id()];
    if (mine == nullptr) mine = make_stream(context, true, std::make_shared<Channel>());
    stream = mine;
  } else if (stream == context->null_stream || is_of_a_thread(*context, stream)) {
    return CUDA_SUCCESS;  // resolved before
  } else if (!state().streams.contains(stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  } else if (stream->context != context) {
    return CUDA_ERROR_INVALID_CONTEXT;  // stricter than the driver, which takes some calls
  }
  return CUDA_SUCCESS;
}

bool is_capturing(CUstream stream) {
  return resolve(stream) == CUDA_SUCCESS && stream->session != nullptr;
}

CUresult refuse_in_capture(CUstream stream) {
  if (resolve(stream) == CUDA_SUCCESS && stream->session != nullptr) stream->session->is_invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult submit(CUstream stream, std::function<CUresult()> step) {
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  if (stream->session != nullptr) return record(stream, std::move(step));
  order_with_null(stream);
  enqueue(stream, std::move(step));
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  FAKE_CONTEXT_ALONE(context);
  if (priority < highest_priority() || priority > lowest_priority) return CUDA_ERROR_INVALID_VALUE;
  *stream = make_stream(context, flags != CU_STREAM_NON_BLOCKING, channel_for(context, priority), priority);
  const std::lock_guard lock(state().mutex);
  state().streams.insert(*stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FAKE_CALLED_ALONE();
  return cuStreamCreateWithPriority(stream, flags, 0);
}

// Of the current context's GPU, whatever the green context is.
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned flags, int priority) {
  if (green == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
  if (result == CUDA_SUCCESS) (*stream)->green = green;
  return result;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CONTEXT(context);
  *least = lowest_priority;
  *greatest = highest_priority();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  FAKE_CALLED();
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  FAKE_CALLED_TO_WAIT();
  {
    const std::lock_guard lock(state().mutex);
    if (state().streams.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->session != nullptr) stream->session->is_invalid = true;
  }
  wait_until(stream, submitted(stream));
  delete stream;  // NOLINT
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  FAKE_CALLED();
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  if (stream->session != nullptr) return spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const std::lock_guard lock(stream->mutex);
  return stream->completed == stream->submitted ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_CALLED_TO_WAIT();
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  if (stream->session != nullptr) return spoil(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  wait_until(stream, submitted(stream));
  return stream->context->error;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  if (!state().streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  static CUctx_st of_green;  // what cuCtxFromGreenCtx() would make
  *context = stream->green == nullptr ? stream->context : &of_green;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  if (!state().streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *context = stream->context;
  *green = stream->green;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CALLED();
  const bool is_legacy = stream == nullptr || stream == CU_STREAM_LEGACY;
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (is_legacy) {
    const std::lock_guard lock(state().mutex);
    for (CUstream other : state().streams)
      if (other->session != nullptr && other->waits_for_null) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  } else if (stream->session != nullptr) {
    *status =
        stream->session->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  FAKE_CONTEXT(context);
  *event = new CUevent_st;  // NOLINT
  (*event)->context = context;
  (*event)->is_timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  const std::lock_guard lock(state().mutex);
  state().events.insert(*event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  if (state().events.erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete event;  // NOLINT
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_CALLED();
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  auto mark = std::make_shared<Mark>();
  event->mark = mark;
  if (stream->session != nullptr) {
    if (stream->session->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const std::lock_guard lock(stream->session->mutex);
    mark->session = stream->session;
    mark->behind = stream->session->behind[stream];
    return CUDA_SUCCESS;
  }
  return submit(stream, [mark] {
    mark->at = std::chrono::steady_clock::now();
    mark->done = true;
    return CUDA_SUCCESS;
  });
}

CUresult cuEventQuery(CUevent event) {
  FAKE_CONTEXT(context);
  const auto mark = event->mark;
  if (mark == nullptr) return CUDA_SUCCESS;
  if (mark->session != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  return mark->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// The header's has another name.
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  FAKE_CALLED();
  {
    const std::lock_guard lock(state().mutex);
    for (CUevent event : {start, end})
      if (!state().events.contains(event) || !event->is_timed || event->mark == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
  }
  if (start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
  for (CUevent event : {start, end}) {
    if (event->mark->session != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->mark->done) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->at - start->mark->at).count();
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  FAKE_CALLED();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = resolve(stream); result != CUDA_SUCCESS) return result;
  const auto mark = event->mark;
  if (mark != nullptr && mark->session != nullptr) {
    if (stream->session != nullptr && stream->session != mark->session)
      return spoil(stream, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    // The capture of the event may be over: it is of no use to anybody then.
    if (!is_open(*mark->session)) return CUDA_ERROR_CAPTURED_EVENT;
    stream->session = mark->session;
    return join(stream, mark->behind);
  }
  if (stream->session != nullptr) return spoil(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (mark == nullptr) return CUDA_SUCCESS;
  return submit(stream, [mark] { return sleep_until([&] { return mark->done.load(); }); });
}
}
