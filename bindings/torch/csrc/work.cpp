#include "work.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <utility>

#include "communicator.hpp"
#include "errors.hpp"
#include "group_thread.hpp"

namespace epccl_torch {
namespace {

/// The queue whose call this thread runs.
thread_local const Queue* served_here = nullptr;

c10d::WorkResult outcome(const c10::ivalue::Future& done) {
  if (!done.hasError()) return c10d::WorkResult::SUCCESS;
  return is_timeout(done.exception_ptr()) ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
}

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> result_of(c10::ivalue::Future& future) {
  return future.then(
      [](c10::ivalue::Future& done) { return c10::IValue(static_cast<int64_t>(outcome(done))); },
      c10::IntType::get());
}

Call::Call(int rank, What what, std::function<void()> body)
    : Work(rank, what.type, what.name, what.inputs),
      what_(std::move(what)),
      body_(std::move(body)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void Call::run() {
  complete(make());
}

std::exception_ptr Call::make() {
  try {
    // Results are copied into the program's tensors, which may be leaves that require gradients, or were made in inference mode, which
    // this thread is not in. As where results are written directly, autograd is told nothing.
    const at::AutoDispatchBelowADInplaceOrView no_grad;
    body_();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Call::fail(std::exception_ptr why) {
  complete(std::move(why));
}

void Call::complete(std::exception_ptr failure) {
  // What it holds is released before anybody is told. Inputs are for who waits: the last reference to a tensor may wait for the
  // interpreter, and this thread has calls to make.
  let_go(body_);
  if (failure)
    future_->setError(failure);
  else
    future_->markCompleted(c10::IValue(what_.outputs));
  finish(failure);
}

c10::intrusive_ptr<c10::ivalue::Future> Call::getFutureResult() {
  return result_of(*future_);
}

bool Call::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout && what_.timeout.count() >= 0) timeout = what_.timeout;
  decltype(what_.inputs) gone;  // after the lock
  std::unique_lock<std::mutex> lock(mutex_);
  if (timeout == kNoTimeout) {
    cv_.wait(lock, [this] { return completed_; });
  } else {
    const bool done = cv_.wait_for(lock, bounded(timeout), [this] { return completed_; });
    TORCH_CHECK_WITH(DistBackendError, done, "epccl: ", what_.word(), " (number ", what_.sequence,
                     " of its process group) is not complete after ", timeout.count(), " ms; it goes on");
  }
  gone.swap(what_.inputs);
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

Queue::~Queue() {
  stop();
}

void Queue::stop() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Queue::issue(const CallPtr& call) {
  if (served_here == this) {  // by a callback
    ++unfinished_;
    return run(*call);
  }
  std::unique_lock lock(mutex_);
  if (!call->async() && !busy_ && waiting_.empty()) {
    busy_ = true;
    ++unfinished_;
    lock.unlock();
    run(*call);
    lock.lock();
    busy_ = false;
    lock.unlock();
    changed_.notify_all();
    return;
  }
  if (!thread_.joinable())
    thread_ = start_group_thread([this] { serve(); });  // first: there may be none to be had
  waiting_.push_back(call);
  ++unfinished_;
  lock.unlock();
  changed_.notify_all();
}

void Queue::run(Call& call) {
  std::exception_ptr failure = call.make();
  --unfinished_;
  call.complete(std::move(failure));
}

void Queue::serve() {
  served_here = this;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return over_ || (!busy_ && !waiting_.empty()); });
    if (busy_ || waiting_.empty()) return;  // over
    CallPtr call = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    run(*call);
    call.reset();  // perhaps the last one who has it: not with the mutex
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_ && waiting_.empty(); });
}

void Queue::clear(const std::string& why) {
  std::deque<CallPtr> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(waiting_);
    unfinished_ -= static_cast<int>(dropped.size());
  }
  for (const CallPtr& call : dropped) call->fail(backend_error(call->word(), ": ", why));
}

void Queue::rest(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [this] { return !busy_; });
}

bool Queue::idle() const {
  return unfinished_ == 0;
}

}  // namespace epccl_torch
