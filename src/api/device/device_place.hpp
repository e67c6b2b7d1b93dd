// What a call on a GPU's memory needs of its communicator, and its place in the user's stream.
#pragma once

#include <cstddef>
#include <memory>

#include "api/groups/group.hpp"
#include "api/handles/handles.hpp"
#include "base/status.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

struct Place {
  runtime::OnDevice* on = nullptr;
  TurnPtr turn;
};

Result<Place> take_place(runtime::OnDevice& on, void* stream);
/// That of a call which is made when its stream has come to it, by a graph's word.
Result<Place> begun_place(runtime::OnDevice& on);

/// Whether calls that queues make may be queued behind their streams. Where they are measured they are not: their time begins when their
/// streams have come.
inline bool can_queue_behind(const runtime::Communicator& communicator) {
  return communicator.cluster().nodes() == 1 && !communicator.measures_calls();
}

inline std::byte* bytes_at(const void* address) {
  return static_cast<std::byte*>(const_cast<void*>(address));  // NOLINT: pieces of both directions are alike
}

}  // namespace epccl::api
