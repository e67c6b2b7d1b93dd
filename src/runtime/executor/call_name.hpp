// What the ranks call a call whose plan is not the runtime's own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/executor/message_key.hpp"

namespace epccl::runtime {

/// Ranks of a node compare `text`, which is equal on ranks that agree; ranks of different nodes `meaning`.
struct CallName {
  CallName(std::string name)
      : text(std::move(name)), meaning(meaning_of(text)) {}    // NOLINT: a name is a text
  CallName(const char* name) : CallName(std::string(name)) {}  // NOLINT: likewise
  /// `across`: what of it is for the messages. The rest is in what they bring, and is told from there.
  CallName(std::string name, std::string_view across) : text(std::move(name)), meaning(meaning_of(across)) {}

  std::string text;
  uint16_t meaning = 0;
};

}  // namespace epccl::runtime
