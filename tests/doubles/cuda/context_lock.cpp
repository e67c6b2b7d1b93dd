#include "context_lock.hpp"

#include <chrono>
#include <shared_mutex>
#include <thread>

#include "state.hpp"

namespace fake_cuda {
namespace {

thread_local int depth = 0;

std::shared_mutex& lock() {
  static auto* instance = new std::shared_mutex;  // NOLINT: streams' threads outlive static objects
  return *instance;
}

bool is_on() {
  static const bool value = environment("FAKE_CUDA_CONTEXT_LOCK", 0) != 0;
  return value;
}

bool is_through(CUstream_st* stream) {
  if (stream == nullptr) return true;
  const std::lock_guard lock(stream->mutex);
  return stream->completed == stream->submitted;
}

/// The calling thread's context; of all where it has none.
bool all_through() {
  const CUctx_st* mine = current_context();
  const std::lock_guard lock(state().mutex);
  for (CUstream_st* stream : state().streams)
    if ((mine == nullptr || stream->context == mine) && !is_through(stream)) return false;
  for (const auto& context : state().contexts) {
    if (context == nullptr || (mine != nullptr && context.get() != mine)) continue;
    if (!is_through(context->null_stream)) return false;
    for (const auto& [thread, stream] : context->thread_streams)
      if (!is_through(stream)) return false;
  }
  return true;
}

}  // namespace

ContextLock::ContextLock(Kind kind) : is_alone_(kind == Kind::alone) {
  if (!is_on()) return;
  is_outermost_ = depth++ == 0;
  if (!is_outermost_) return;
  if (!is_alone_) {
    lock().lock_shared();
    return;
  }
  lock().lock();
  fake_cuda_count("alone", 1);
  while (!all_through()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

ContextLock::~ContextLock() {
  if (!is_on()) return;
  --depth;
  if (!is_outermost_) return;
  if (is_alone_)
    lock().unlock();
  else
    lock().unlock_shared();
}

}  // namespace fake_cuda
