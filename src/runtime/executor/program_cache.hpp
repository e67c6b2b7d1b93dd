// What was made of plans, by what names the call: those used last.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/status.hpp"

namespace epccl::runtime {

/// What is kept, at most. Programs use few sizes, but some have one for each length of a text; a step takes some 150 bytes, and what it
/// waits for, or adds up, comes on top.
struct CacheLimits {
  size_t programs = 1024;
  size_t bytes = 20 << 20;
};

/// A Program has bytes(), how much memory it takes; that may become more after the get() that gave it, and before the next.
template <typename Program, typename Name = std::string, typename Hash = std::hash<Name>>
class ProgramCache {
 public:
  explicit ProgramCache(const CacheLimits& limits = {}) : limits_(limits) {}

  /// The one that was kept under `name`, or what `make` makes, a Result<Program>. It stays until the next call of this. `keep`: for the
  /// next such call, else it is made anew.
  template <typename Make>
  Result<Program*> get(const Name& name, bool keep, const Make& make) {
    if (!keep) {
      EPCCL_ASSIGN(last_, make());
      return &last_;
    }
    if (!kept_.empty() && kept_.front().name == name) return &kept_.front().program;
    count_first();
    if (const auto known = places_.find(name); known != places_.end()) {
      kept_.splice(kept_.begin(), kept_, known->second);
      return &kept_.front().program;
    }
    EPCCL_ASSIGN(Program made, make());
    kept_.push_front({name, std::move(made)});
    places_.emplace(name, kept_.begin());
    count_first();
    make_room();
    return &kept_.front().program;
  }

 private:
  struct Kept {
    Name name;
    Program program;
    size_t bytes = 0;  // when they were last counted
  };

  // Only what was given last may have grown.
  void count_first() {
    if (kept_.empty()) return;
    Kept& first = kept_.front();
    bytes_ -= std::exchange(first.bytes, first.program.bytes());
    bytes_ += first.bytes;
  }

  // Whatever it takes, the first stays.
  void make_room() {
    while (kept_.size() > 1 && (kept_.size() > limits_.programs || bytes_ > limits_.bytes)) {
      bytes_ -= kept_.back().bytes;
      places_.erase(kept_.back().name);
      kept_.pop_back();
    }
  }

  const CacheLimits limits_;
  std::list<Kept> kept_;  // what was used last comes first
  std::unordered_map<Name, typename std::list<Kept>::iterator, Hash> places_;
  size_t bytes_ = 0;  // of all
  Program last_;      // that is not to be kept
};

}  // namespace epccl::runtime
