#include <Python.h>

#include "backend.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "assembly.hpp"
#include "errors.hpp"
#include "program_end.hpp"
#include "tensors.hpp"

namespace epccl_torch {
namespace {

std::string describe_ranks(const std::vector<int64_t>& global_ranks) {
  std::string text;
  bool same = true;
  for (size_t rank = 0; rank < global_ranks.size(); ++rank) {
    same &= global_ranks[rank] == static_cast<int64_t>(rank);
    text += (rank > 0 ? ", " : "") + std::to_string(global_ranks[rank]);
  }
  return same ? "" : " (ranks of this group are, globally: " + text + ")";
}

/// While this lives, calls wait for silent ranks as long as one of them was told to, not as long as the group's do.
class OtherTimeout {
 public:
  OtherTimeout(epcclComm_t comm, std::chrono::milliseconds timeout,
               std::atomic<std::chrono::milliseconds>& of_group)
      : comm_(comm), of_group_(of_group) {
    check(epcclCommSetTimeout(comm_, in_seconds(std::max(bounded(timeout), std::chrono::milliseconds(1)))),
          "timeout");
  }
  OtherTimeout(const OtherTimeout&) = delete;
  OtherTimeout& operator=(const OtherTimeout&) = delete;
  ~OtherTimeout() { (void)epcclCommSetTimeout(comm_, in_seconds(of_group_)); }

 private:
  const epcclComm_t comm_;
  std::atomic<std::chrono::milliseconds>& of_group_;
};

std::exception_ptr gone(const char* how) {
  return backend_error("this process group was ", how);
}

}  // namespace

EpcclBackend::EpcclBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           std::chrono::milliseconds timeout, std::vector<int64_t> global_ranks,
                           std::string name)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(c10::make_intrusive<Options>("epccl", timeout)),
      timeout_(std::make_shared<SharedTimeout::element_type>(bounded(timeout))),
      name_(std::move(name)),
      other_names_(describe_ranks(global_ranks)),
      communicator_(assemble(store_, size, rank, timeout_, "process group " + name_ + other_names_)),
      device_lines_(
          [](const c10::Device& one, const c10::Device& other) { return one.index() < other.index(); }),
      inbox_(size, rank, timeout_, "process group " + name_ + other_names_),
      any_source_(inbox_, any_source_group()) {
  options_->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
  init();
  group_begins(this);
}

EpcclBackend::~EpcclBackend() {
  group_ends(this);
  // The threads that are waited for may need the interpreter's lock, to release tensors.
  const bool locked = Py_IsInitialized() && PyGILState_Check();
  PyThreadState* const state = locked ? PyEval_SaveThread() : nullptr;
  // With calls still under way the others may never come: they are told instead of waited for.
  if (queue_.idle() && gpus_come_to_rest())
    shutdown();
  else
    abort();
  queue_.stop();
  batch_.reset();
  device_lines_.clear();
  any_source_.stop();
  send_channels_.clear();
  receive_channels_.clear();
  if (locked) PyEval_RestoreThread(state);
}

void EpcclBackend::operator delete(EpcclBackend* group, std::destroying_delete_t) noexcept {
  const auto end = [group] {
    group->~EpcclBackend();
    ::operator delete(group);
  };
  if (!on_group_thread) return end();
  try {
    std::thread([group, end] {
      group->queue_.rest(gpus_time_to_end);  // the call whose callback that was: others may still be in it
      end();
    }).detach();
  } catch (const std::exception&) {
    // Without a thread it is never over.
  }
}

void EpcclBackend::leave_at_end() noexcept {
  if (!left_.exchange(true)) tell_that_this_rank_left();
  queue_.idle() ? communicator_->leave() : communicator_->abort();
}

void EpcclBackend::leave_messages_at_end() {
  any_source_.stop();
  inbox_.end(gone("destroyed"));
  leave_channels(std::chrono::milliseconds(0));
}

void EpcclBackend::stay_of_parent() noexcept {
  of_parent_ = true;
  c10::raw::intrusive_ptr::incref(this);
}

void EpcclBackend::check_process() const {
  TORCH_CHECK_WITH(DistBackendError, !of_parent_, "epccl: process group ", name_,
                   " was made before this process was forked, and is its parent's");
}

void EpcclBackend::abort() {
  if (of_parent_) return;
  failed_ = true;
  communicator_->abort();
  for (DeviceLine* line : device_lines()) line->communicator()->abort();
  {
    const std::lock_guard lock(channels_mutex_);
    for (const auto& entry : send_channels_) entry.second->abort();
    for (const auto& entry : receive_channels_) entry.second->abort();
  }
  // Last: that runs callbacks here, which may issue calls and wait for them.
  inbox_.end(gone("aborted"));
  queue_.clear("the process group was aborted");
}

std::string EpcclBackend::left_key(int rank) {
  return "epccl/left/" + std::to_string(rank);
}

// What it waits for it waits for without the lock: abort() must reach the channels meanwhile.
void EpcclBackend::leave_channels(std::chrono::milliseconds patience) {
  const auto copy_of = [this](const auto& channels) {
    const std::lock_guard lock(channels_mutex_);
    return channels;
  };
  // Partners that are in their receives have what was sent to them.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const auto& entry : copy_of(send_channels_)) entry.second->leave(deadline);
  for (const auto& entry : copy_of(receive_channels_)) entry.second->leave();
  decltype(send_channels_) sends;  // which end after the lock
  decltype(receive_channels_) receives;
  const std::lock_guard lock(channels_mutex_);
  sends.swap(send_channels_);
  receives.swap(receive_channels_);
}

// Ranks that come later with a first message hear it.
void EpcclBackend::tell_that_this_rank_left() {
  try {
    c10::intrusive_ptr<c10d::Store> store = store_;
    {
      const std::lock_guard lock(message_store_mutex_);
      if (message_store_) store = message_store_;
    }
    store->set(left_key(rank_), std::vector<uint8_t>{1});
  } catch (const std::exception&) {
    // The store is gone, with whoever held it: nobody looks there any more.
  }
}

void EpcclBackend::shutdown() {
  if (of_parent_) return;
  if (on_group_thread) {  // of a callback, which it would wait for
    std::thread([self = c10::intrusive_ptr<EpcclBackend>::unsafe_reclaim_from_nonowning(this)] {
      self->shutdown();
    }).detach();
    return;
  }
  queue_.drain();
  any_source_.stop();
  inbox_.end(gone("destroyed"));
  leave_channels(sends_time_to_end);
  if (!left_.exchange(true)) tell_that_this_rank_left();
  for (DeviceLine* line : device_lines()) line->communicator()->leave();
  communicator_->leave();
}

int64_t EpcclBackend::global_rank(int rank) const {
  const auto& here = options_->global_ranks_in_group;
  return here.empty() ? rank : static_cast<int64_t>(here[static_cast<size_t>(rank)]);
}

c10::intrusive_ptr<c10d::Backend> EpcclBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& opts) {
  check_process();
  const auto mine = std::ranges::find(ranks, rank_);
  if (mine == ranks.end()) return nullptr;
  std::vector<int64_t> global_ranks;
  for (const int rank : ranks) {
    TORCH_CHECK(rank >= 0 && rank < size_, "epccl: split_group: rank ", rank, " is not in 0..", size_ - 1);
    global_ranks.push_back(global_rank(rank));
  }
  return c10::make_intrusive<EpcclBackend>(
      store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
      opts ? opts->timeout : options_->timeout, std::move(global_ranks),
      opts && !opts->group_name.empty() ? opts->group_name : name_ + " split");
}

c10::intrusive_ptr<c10d::Backend> EpcclBackend::shrink(const std::vector<int64_t>& excluded, int shrink_flags,
                                                       const c10::intrusive_ptr<Options>& opts) {
  check_process();
  constexpr int abort_first = 1;
  std::vector<int64_t> global_ranks;
  std::string key = "epccl/without";
  int rank = -1, size = 0;
  for (int each = 0; each < size_; ++each) {
    if (std::ranges::find(excluded, each) != excluded.end()) {
      key += "-" + std::to_string(each);
      continue;
    }
    if (each == rank_) rank = size;
    global_ranks.push_back(global_rank(each));
    ++size;
  }
  TORCH_CHECK(rank >= 0, "epccl: shrink: rank ", rank_, " is excluded, so it must not call this");
  if (shrink_flags & abort_first) abort();
  auto store = c10::make_intrusive<c10d::PrefixStore>(key, store_);
  return c10::make_intrusive<EpcclBackend>(std::move(store), rank, size,
                                           opts ? opts->timeout : options_->timeout, std::move(global_ranks),
                                           name_ + " shrunk");
}

c10::intrusive_ptr<c10d::Backend> EpcclBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const c10::intrusive_ptr<Options>& opts,
                                                      const int& rank, const int& size) {
  // What the ranks are globally only the caller knows.
  return c10::make_intrusive<EpcclBackend>(
      store, rank, size, opts ? opts->timeout : options_->timeout, std::vector<int64_t>(),
      opts && !opts->group_name.empty() ? opts->group_name : name_ + " merged");
}

void EpcclBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "epccl: set_timeout: ", timeout.count(),
              " ms: it must be at least a millisecond");
  // First: a call with a timeout of its own that ends just now sets the communicator back to this. Pairs of ranks that exchange messages
  // take it with their next one.
  *timeout_ = bounded(timeout);
  ok(epcclCommSetTimeout(communicator_->handle(), in_seconds(bounded(timeout))), "set_timeout");
  for (DeviceLine* line : device_lines())
    ok(epcclCommSetTimeout(line->communicator()->handle(), in_seconds(bounded(timeout))), "set_timeout");
  options_->timeout = timeout;
}

c10d::ErrorType EpcclBackend::getError() {
  std::vector<Communicator::Failure> failures{communicator_->failure()};
  for (DeviceLine* line : device_lines()) failures.push_back(line->communicator()->failure());
  std::erase_if(failures, [](const auto& each) { return each.text.empty(); });
  if (std::ranges::any_of(failures, [](const auto& each) { return each.reason == epcclReasonTimeout; }))
    return c10d::ErrorType::TIMEOUT;
  return failed_ || !failures.empty() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

EpcclBackend::WorkPtr EpcclBackend::issue(Call::What what, Body body) {
  return in_batch([&] {
    check_written(what.name, what.outputs);
    what.sequence = sequence_++;
    what.patience = what.timeout.count() < 0 ? timeout_->load() : what.timeout;
    const std::optional<c10::Device> device = common_device(what.name, {&what.inputs, &what.outputs});
    if (!device || device->is_cpu()) return note(issue_on_host(std::move(what), std::move(body)));
    return note(device_line(*device).issue(rank_, std::move(what), body));
  });
}

EpcclBackend::WorkPtr EpcclBackend::issue_on_host(Call::What what, Body body) {
  const std::chrono::milliseconds own = what.timeout;
  auto call = c10::make_intrusive<Call>(
      rank_, std::move(what),
      [body = std::move(body), communicator = communicator_, own, of_group = timeout_] {
        const epcclComm_t comm = communicator->handle();
        if (own.count() < 0) return body({comm});
        const OtherTimeout its_own(comm, own, *of_group);
        body({comm});
      });
  queue_.issue(call);
  return call;
}

void EpcclBackend::ok(epcclResult_t result, const char* what) const {
  if (result == epcclSuccess) return;
  check(result, what + other_names_);
}

void EpcclBackend::check_others(const char* what) const {
  epcclResult_t failure = epcclSuccess;
  ok(epcclCommGetAsyncError(communicator_->handle(), &failure), what);
  ok(failure, what);
}

void EpcclBackend::check_root(const char* what, int64_t root) const {
  TORCH_CHECK(root >= 0 && root < size_, "epccl: ", what, ": root ", root, " is not in 0..", size_ - 1);
}

}  // namespace epccl_torch
