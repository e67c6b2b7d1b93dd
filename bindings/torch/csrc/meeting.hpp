// How ranks that share a torch Store find each other.
#pragma once

#include <functional>
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
  std::function<void()>
      go_on;  // called again and again while others are waited for: what it throws ends the wait
  // Set where it is two ranks, which exchange messages: rank 0 too waits in the store for the other one before it joins. Where in the
  // store the other one's mark is once it has left the group in order, which is no error of the group's communicator.
  std::string other_left = "";
};

/// Rank 0 makes the unique id and puts it into the store, the others take it; then all join. Never blocks inside the store, which
/// other threads use over the same connection.
std::shared_ptr<Communicator> meet(const Meeting& meeting);

}  // namespace epccl_torch
