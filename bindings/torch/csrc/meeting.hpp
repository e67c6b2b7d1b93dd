// How ranks that share a torch Store find each other.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "communicator.hpp"

namespace epccl_torch {

struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  std::string key;  // where the id is; of one meeting only
  int ranks = 0, rank = 0;
  SharedTimeout timeout;
  std::string name;
  // Where set, rank 0 too waits in the store for the other one (of two) before it joins, and the wait ends when this becomes true.
  std::shared_ptr<std::atomic<bool>> give_up = nullptr;
};

/// Rank 0 makes the unique id and puts it into the store, the others take it; then all join. Never blocks inside the store, which
/// other threads use over the same connection.
std::shared_ptr<Communicator> meet(const Meeting& meeting);

}  // namespace epccl_torch
