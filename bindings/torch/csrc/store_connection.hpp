// The process' own connections to the stores that its groups meet in.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace epccl_torch {

/// `store` over a connection that no call of the program waits on, and that all groups of the process whose stores are one share: a group
/// costs no descriptor, here or at the store's host, and none looks up its name. Nobody may block on it: check() before get(), no wait(). A store
/// that cannot have another connection is itself. May take as long as connecting does.
c10::intrusive_ptr<c10d::Store> over_own_connection(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace epccl_torch
