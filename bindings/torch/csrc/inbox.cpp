#include "inbox.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "errors.hpp"

namespace epccl_torch {
namespace {

std::string name_of(int source) {
  return source == Inbox::any ? "any rank" : "rank " + std::to_string(source);
}

}  // namespace

Inbox::Inbox(int ranks, int rank, SharedTimeout timeout, std::string where)
    : rank_(rank), timeout_(std::move(timeout)), where_(std::move(where)) {
  for (int source = 0; source < ranks; ++source) sources_.push_back(std::make_unique<Source>());
  at(rank).endless = true;  // nobody but AnySource looks after its receives
}

void Inbox::post(Receive receive) {
  receive.timeout = *timeout_;
  std::unique_lock lock(mutex_);
  std::exception_ptr why = ended_;
  if (const auto early = why ? nullptr : take_early(receive)) {
    if (early->whole) {
      lock.unlock();
      deliver(receive, *early);
    } else {
      early->taker = std::move(receive);
    }
    return;
  }
  if (!why) why = receive.source == any ? nobody_left() : at(receive.source).failure;
  if (why) {
    lock.unlock();
    receive.call->fail(why);
    return;
  }
  const int source = receive.source;
  posted_.push_back(std::move(receive));
  const bool watched = needs_watch();
  for (int each = 0; each < static_cast<int>(sources_.size()); ++each)
    if (source == any || source == each) at(each).changed.notify_all();
  lock.unlock();
  if (watched) watch_.notify_all();
}

void Inbox::send_own(const void* data, uint64_t bytes, int tag) {
  const Landing landing = land(rank_, {bytes, tag});
  if (bytes > 0) std::memmove(landing.data, data, bytes);  // it may be the receive's own memory
  landed(rank_, landing);
}

// Of the messages that wait, the one that came first.
std::shared_ptr<Inbox::Early> Inbox::take_early(const Receive& receive) {
  const auto queue = early_.find(receive.tag);
  if (queue == early_.end()) return nullptr;
  const auto found = std::ranges::find_if(queue->second, [&](const auto& early) {
    return receive.source == any || receive.source == early->source;
  });
  if (found == queue->second.end()) return nullptr;
  std::shared_ptr<Early> early = std::move(*found);
  queue->second.erase(found);
  if (queue->second.empty()) early_.erase(queue);
  return early;
}

void Inbox::deliver(const Receive& receive, const Early& early) const {
  if (early.bytes.size() != receive.bytes) {
    receive.call->fail(backend_error("recv from ", name_of(early.source), ", tag ", early.tag, ": ",
                                     early.bytes.size(), " bytes came, ", receive.bytes, " were expected (",
                                     where_, ")"));
    return;
  }
  if (receive.bytes > 0) std::memcpy(receive.data, early.bytes.data(), receive.bytes);
  receive.call->came_from(early.source);
  receive.call->run();
}

bool Inbox::asked_for(int source) const {
  return std::ranges::any_of(posted_, [=](const Receive& receive) { return receive.source == source; });
}

bool Inbox::is_wanted(int source) const {
  return std::ranges::any_of(
      posted_, [=](const Receive& receive) { return receive.source == any || receive.source == source; });
}

bool Inbox::wanted(int source) {
  std::unique_lock lock(mutex_);
  Source& its = at(source);
  its.changed.wait(lock, [&] { return its.over || (!its.failure && is_wanted(source)); });
  if (its.over) return false;
  its.phase = Source::Phase::opening;
  return true;
}

Inbox::Patience Inbox::begin_wait(int source) {
  const std::lock_guard lock(mutex_);
  Source& its = at(source);
  const bool asked = asked_for(source);
  const bool one_of_many = !asked && is_wanted(source);
  its.phase = asked || one_of_many ? Source::Phase::waiting : Source::Phase::idle;
  its.endless = one_of_many;
  if (asked) return Patience::timeout;
  return one_of_many ? Patience::endless : Patience::none;
}

Inbox::Landing Inbox::land(int source, const MessageHeader& header) {
  const std::lock_guard lock(mutex_);
  Source& its = at(source);
  its.phase = Source::Phase::moving;
  its.endless = source == rank_;
  last_arrival_ = Clock::now();
  const auto receive = std::ranges::find_if(posted_, [&](const Receive& posted) {
    return posted.tag == header.tag && (posted.source == any || posted.source == source);
  });
  Landing landing;
  const bool fits = receive != posted_.end() && receive->bytes == header.bytes;
  if (!fits) {  // what may throw comes first: the receive must not be lost
    landing.early = std::make_shared<Early>();
    landing.early->source = source;
    landing.early->tag = static_cast<int>(header.tag);
    landing.early->bytes.resize(header.bytes);
    if (receive == posted_.end()) early_[landing.early->tag].push_back(landing.early);
  }
  if (receive != posted_.end()) {
    landing.receive = std::move(*receive);
    posted_.erase(receive);
  }
  landing.data = fits ? landing.receive.data : landing.early->bytes.data();
  return landing;
}

void Inbox::landed(int source, const Landing& landing) {
  Receive receive = landing.receive;
  if (landing.early && !receive.call) {
    const std::lock_guard lock(mutex_);
    landing.early->whole = true;
    receive = std::exchange(landing.early->taker, {});
  }
  if (receive.call && landing.early) {
    deliver(receive, *landing.early);
  } else if (receive.call) {
    receive.call->came_from(source);
    receive.call->run();
  }
  const std::lock_guard lock(mutex_);
  at(source).phase = Source::Phase::idle;
  at(source).changed.notify_all();
}

void Inbox::lost(int source, const Landing& landing, const std::exception_ptr& why) {
  Receive receive = landing.receive;
  if (landing.early && !receive.call) {
    const std::lock_guard lock(mutex_);
    receive = std::exchange(landing.early->taker, {});
    const auto queue = early_.find(landing.early->tag);
    if (queue != early_.end()) std::erase(queue->second, landing.early);
  }
  if (receive.call) receive.call->fail(why);
  fail(source, why);
}

template <typename Which>
void Inbox::fail_posted(std::unique_lock<std::mutex>& lock, Which which, const std::exception_ptr& why) {
  Posted failed;
  for (auto each = posted_.begin(); each != posted_.end();) {
    const auto next = std::next(each);
    if (which(*each)) failed.splice(failed.end(), posted_, each);
    each = next;
  }
  lock.unlock();
  for (const Receive& receive : failed) receive.call->fail(why);
  failed.clear();  // perhaps the last ones who have the calls: not with the mutex
  lock.lock();
}

// Where every other rank has failed, no message comes any more.
std::exception_ptr Inbox::nobody_left() const {
  std::exception_ptr last;
  for (int source = 0; source < static_cast<int>(sources_.size()); ++source) {
    if (source == rank_) continue;
    last = sources_[static_cast<size_t>(source)]->failure;
    if (!last) return nullptr;
  }
  return last;
}

void Inbox::fail(int source, const std::exception_ptr& why) {
  std::unique_lock lock(mutex_);
  Source& its = at(source);
  if (!its.failure) its.failure = why;
  const std::exception_ptr first = its.failure;
  const bool last_one = nobody_left() != nullptr;
  fail_posted(
      lock,
      [=](const Receive& receive) { return receive.source == source || (last_one && receive.source == any); },
      first);
  its.phase = Source::Phase::idle;
  its.endless = source == rank_;
  its.changed.notify_all();
}

void Inbox::end(const std::exception_ptr& why) {
  std::unique_lock lock(mutex_);
  if (!ended_) ended_ = why;
  fail_posted(
      lock, [](const Receive&) { return true; }, why);
}

bool Inbox::leave(int source) {
  std::unique_lock lock(mutex_);
  Source& its = at(source);
  its.changed.wait(lock, [&] { return its.phase != Source::Phase::moving; });
  return its.phase != Source::Phase::idle;
}

void Inbox::release(int source) {
  const std::lock_guard lock(mutex_);
  at(source).over = true;
  at(source).changed.notify_all();
}

// A source's thread looks after receives from it itself, unless it began to wait when there was none.
bool Inbox::needs_watch() const {
  return std::ranges::any_of(posted_, [this](const Receive& receive) {
    return receive.source == any || sources_[static_cast<size_t>(receive.source)]->endless;
  });
}

bool Inbox::watch(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  if (pause.count() > 0) watch_.wait_for(lock, pause, [this] { return !watching_; });
  watch_.wait(lock, [this] { return !watching_ || needs_watch(); });
  return watching_;
}

void Inbox::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    watching_ = false;
  }
  watch_.notify_all();
}

bool Inbox::any_waiting() {
  const std::lock_guard lock(mutex_);
  return is_wanted(any);
}

void Inbox::fail_any(const std::exception_ptr& why) {
  std::unique_lock lock(mutex_);
  fail_posted(
      lock, [](const Receive& receive) { return receive.source == any; }, why);
}

std::exception_ptr Inbox::too_late(const Receive& receive) const {
  return error_of<TimedOut>("recv from ", name_of(receive.source), ", tag ", receive.tag,
                            ": timeout: nothing came from ", receive.source == any ? "anybody" : "it",
                            " within ", receive.timeout.count(), " ms (", where_, ")");
}

std::vector<int> Inbox::expire() {
  std::vector<int> silent;
  Posted failed;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (auto each = posted_.begin(); each != posted_.end();) {
      const auto next = std::next(each);
      const bool from_any = each->source == any;
      const auto limit = now - each->timeout;
      if (each->since <= limit && (from_any ? last_arrival_ <= limit : at(each->source).endless)) {
        if (!from_any) silent.push_back(each->source);
        failed.splice(failed.end(), posted_, each);
      }
      each = next;
    }
  }
  for (const Receive& receive : failed) {
    const std::exception_ptr why = too_late(receive);
    if (receive.source != any) fail(receive.source, why);
    receive.call->fail(why);
  }
  return silent;
}

}  // namespace epccl_torch
