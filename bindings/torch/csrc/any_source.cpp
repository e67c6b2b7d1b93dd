#include "any_source.hpp"

#include <algorithm>
#include <utility>

#include "from_store.hpp"
#include "group_thread.hpp"

namespace epccl_torch {
namespace {

using std::chrono::milliseconds;

std::string senders_to(int receiver) {
  return "epccl/senders/" + std::to_string(receiver);
}

std::string sender_key(int receiver, int64_t number) {
  return senders_to(receiver) + "/" + std::to_string(number);
}

}  // namespace

void announce_sender(c10d::Store& store, int receiver, int sender) {
  const int64_t number = store.add(senders_to(receiver), 1);
  const std::string text = std::to_string(sender);
  store.set(sender_key(receiver, number), std::vector<uint8_t>(text.begin(), text.end()));
}

void AnySource::start() {
  const std::lock_guard lock(mutex_);
  if (!stopped_ && !thread_.joinable()) thread_ = start_group_thread([this] { serve(); });
}

void AnySource::stop() {
  std::thread watching;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    watching.swap(thread_);
  }
  inbox_.stop_watching();
  if (watching.joinable()) watching.join();  // its callbacks may call start()
}

// True: one was found.
bool AnySource::look_for_senders() {
  const std::string key = sender_key(group_.rank, seen_ + 1);
  if (seen_ + 1 == group_.ranks || !group_.store->check({key})) return false;
  const std::vector<uint8_t> text = group_.store->get(key);
  ++seen_;
  group_.open(std::stoi(std::string(text.begin(), text.end())));
  return true;
}

void AnySource::serve() {
  constexpr milliseconds shortest{1}, longest{20};
  milliseconds pause{0};
  while (inbox_.watch(pause)) {
    bool found = false;
    for (const int silent : inbox_.expire()) group_.abort(silent);
    try {
      if (inbox_.any_waiting()) {
        found = from_store("a receive from any source", [this] { return look_for_senders(); });
        group_.check();
      }
    } catch (...) {
      inbox_.fail_any(std::current_exception());
    }
    pause = found ? milliseconds(0) : std::clamp(2 * pause, shortest, longest);
  }
}

}  // namespace epccl_torch
