// Groups that a program has not destroyed when it ends. The interpreter takes seconds to take PyTorch apart, and only then does the
// process end; the other ranks should not wait for that to hear that this one makes no more calls.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace epccl_torch {

class EpcclBackend;

/// A group that is there from now on, and one that is not any more.
void group_begins(EpcclBackend* group);
void group_ends(EpcclBackend* group);

/// Called when Python's exit functions run: all groups that are left then leave as soon as the last of those functions is through
/// (they may still make calls), beside the interpreter's end.
void program_ends();
/// Called without the interpreter's lock as the last thing of a process that ends with neither exit functions nor destructors: all groups that are
/// left then leave, with their lines for messages, which otherwise the library does when it is taken apart.
void process_ends();

/// Whether threads of groups may still ask for the interpreter's lock, as giving up a tensor may: when it ends it takes a thread that asks away,
/// whatever the thread is in the middle of, which C++ answers with std::terminate().
struct InterpreterGate {
  std::shared_mutex mutex;
  bool closed = false;
};
InterpreterGate& interpreter_gate();

/// Gives `things` up: frees what nobody else has, or leaves it to the end of the process.
template <typename... Things>
void let_go(Things&&... things) {
  const auto give_up = [](auto thing) {
    auto held = std::make_unique<decltype(thing)>(std::move(thing));
    const std::shared_lock lock(interpreter_gate().mutex);
    if (interpreter_gate().closed) static_cast<void>(held.release());
    held.reset();
  };
  (give_up(std::exchange(things, {})), ...);
}

}  // namespace epccl_torch
