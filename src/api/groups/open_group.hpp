// What the calling thread has called since epcclGroupStart().
#pragma once

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "api/groups/dropped_calls.hpp"
#include "api/groups/group.hpp"

namespace epccl::api {

/// A group's place in a stream of a GPU.
struct StreamTurn {
  const device::Device* device = nullptr;
  void* stream = nullptr;
  TurnPtr turn;
};
using StreamTurns = std::vector<StreamTurn>;

// Of the calling thread; by itself, since every call looks at it.
inline thread_local constinit int group_depth = 0;

/// Sends and receives of host memory, of one communicator and on no stream.
struct PlainMessages {
  CommPtr communicator;
  std::vector<runtime::P2pOperation> operations;
};

/// What a group has held, at its end.
struct EndedGroup {
  std::vector<Job> jobs;
  std::vector<Item> items;
  StreamTurns turns;
  Status refused;
};

class Group {
 public:
  std::vector<Job> jobs;
  StreamTurns turns;
  Status refused;

  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // The thread ends.
  ~Group() {
    if (group_depth > 0) drop_unended(jobs, items());
  }

  /// All calls but jobs.
  std::vector<Item>& items() {
    items_.reserve(items_.size() + plain_.operations.size());  // all of them move, or none
    for (runtime::P2pOperation& operation : plain_.operations)
      items_.push_back({plain_.communicator, nullptr, std::move(operation)});
    plain_ = {};
    return items_;
  }

  // Most groups have nothing but such messages: kept apart, while there is nothing else, they need not be sorted.
  void add(CommPtr communicator, runtime::P2pOperation operation) {
    if (!items_.empty() || (plain_.communicator != nullptr && plain_.communicator != communicator)) {
      items().push_back({std::move(communicator), nullptr, std::move(operation)});
      return;
    }
    if (plain_.communicator == nullptr) {
      plain_.communicator = std::move(communicator);
      plain_.operations.reserve(usual_);
    }
    plain_.operations.push_back(std::move(operation));
  }
  bool is_plain() const {
    return plain_.communicator != nullptr && items_.empty() && jobs.empty() && turns.empty() && refused.ok();
  }
  PlainMessages take_plain() {
    constexpr size_t most = 4096;
    usual_ = std::min(plain_.operations.size(), most);
    return std::exchange(plain_, {});
  }

  /// All that it holds: the next group begins empty. Where there is no memory for that, the group counts as refused.
  EndedGroup take() {
    EndedGroup ended;
    try {
      ended.items = std::exchange(items(), {});
    } catch (const std::bad_alloc& none) {
      items_.clear();
      plain_ = {};
      if (refused.ok()) refused = {Code::system_error, none.what()};
    }
    ended.jobs = std::exchange(jobs, {});
    ended.turns = std::exchange(turns, {});
    ended.refused = std::exchange(refused, {});
    return ended;
  }
  /// Where the next group of this thread, which is often like this one, finds room.
  void keep_capacity(std::vector<Item> emptied) {
    constexpr size_t most = 4096;
    if (items_.empty() && emptied.capacity() <= most) items_ = std::move(emptied);
  }

 private:
  std::vector<Item> items_;
  PlainMessages plain_;
  size_t usual_ = 0;  // length of such a group of this thread
};

}  // namespace epccl::api
