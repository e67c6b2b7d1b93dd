#include "cuda_side.hpp"

#include <atomic>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "base/per_process.hpp"

namespace epccl::nccl {
namespace {

struct Sides {
  std::shared_mutex mutex;
  std::unordered_map<ncclComm_t, CudaSidePtr> by_comm;
  std::atomic<size_t> count{0};
};

// Never destroyed: other static destructors may still end communicators. A forked child has none: the threads that make them, and the real
// library's communicators, are its parent's.
Sides& sides() {
  static PerProcess<Sides> instance;
  return *instance;
}

}  // namespace

void add_cuda_side(ncclComm_t comm, CudaSidePtr side) {
  const std::lock_guard lock(sides().mutex);
  sides().by_comm[comm] = std::move(side);
  sides().count = sides().by_comm.size();
}

CudaSidePtr find_cuda_side(ncclComm_t comm) {
  if (sides().count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock lock(sides().mutex);
  const auto it = sides().by_comm.find(comm);
  return it == sides().by_comm.end() ? nullptr : it->second;
}

CudaSidePtr take_cuda_side(ncclComm_t comm) {
  if (sides().count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::lock_guard lock(sides().mutex);
  const auto it = sides().by_comm.find(comm);
  if (it == sides().by_comm.end()) return nullptr;
  CudaSidePtr side = std::move(it->second);
  sides().by_comm.erase(it);
  sides().count = sides().by_comm.size();
  return side;
}

void* context_of_any_side() {
  if (sides().count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock lock(sides().mutex);
  for (const auto& [comm, side] : sides().by_comm)
    if (side->ready && side->context != nullptr) return side->context;
  return nullptr;
}

std::vector<std::pair<ncclComm_t, CudaSidePtr>> sides_in_making() {
  std::vector<std::pair<ncclComm_t, CudaSidePtr>> found;
  const std::shared_lock lock(sides().mutex);
  for (const auto& [comm, side] : sides().by_comm)
    if (side->maker != nullptr && !side->maker->is_over) found.emplace_back(comm, side);
  return found;
}

CudaSidePtr find_real_side(ncclComm_t comm) {
  CudaSidePtr side = find_cuda_side(comm);
  return side != nullptr && side->ready && side->real != nullptr ? side : nullptr;
}

Status check_at_rest(const char* name, CudaSide& side) {
  if (!side.ready)
    return error(Code::invalid_argument, "{}: the communicator is still being made: poll, or abort", name);
  bool in_progress = side.children.in_making();
  if (!in_progress && side.children.has_left_behind()) {
    ncclResult_t state = ncclInProgress;
    (void)side.library->CommGetAsyncError(side.real, &state);
    in_progress = state == ncclInProgress;
  }
  if (in_progress)
    return error(Code::invalid_argument,
                 "{}: a split or shrink of the communicator is in progress: poll, or abort", name);
  if (side.children.has_left_behind())
    for (ncclComm_t unwanted : side.children.take_left_behind()) (void)side.library->CommAbort(unwanted);
  return {};
}

}  // namespace epccl::nccl
