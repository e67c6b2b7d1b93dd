#include "make_cuda_side.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/log.hpp"
#include "convert.hpp"
#include "cuda_driver.hpp"
#include "cuda_side.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::nccl {
namespace {

/// What a rank tells the first, and the first tells all.
struct Note {
  int failed_rank = -1;
  char reason[380] = {};
  ncclUniqueId id{};
};

struct Making {
  const NewSide* what = nullptr;
  ncclComm_t comm = nullptr;
  int rank = 0, ranks = 1;
  Note mine;                 // then what was agreed
  std::vector<Note> others;  // on rank 0
  ncclComm_t real = nullptr;
};

void note_failure(Making& one, const Status& status) {
  if (status.ok()) return;
  one.mine.failed_rank = one.rank;
  status.message().copy(one.mine.reason, sizeof one.mine.reason - 1);
}

Status native_status(epcclResult_t result) {
  if (result == epcclSuccess) return {};
  return {static_cast<Code>(result), epcclGetLastError(nullptr)};
}

// A nonblocking communicator's calls go on in the background.
Status settle(ncclComm_t comm) {
  epcclResult_t state = epcclInProgress;
  while (state == epcclInProgress) {
    EPCCL_TRY(native_status(epcclCommGetAsyncError(native(comm), &state)));
    if (state == epcclInProgress) usleep(50);
  }
  return state == epcclSuccess ? Status{} : Status(static_cast<Code>(state), epcclGetLastError(native(comm)));
}

// One group for all communicators of this thread: their other ranks may be this thread's too.
template <typename Calls>
Status exchange(std::vector<Making>& all, Calls calls) {
  EPCCL_TRY(native_status(epcclGroupStart()));
  for (Making& one : all) calls(one);
  const epcclResult_t ended = epcclGroupEnd();
  if (ended != epcclInProgress) EPCCL_TRY(native_status(ended));
  for (const Making& one : all) EPCCL_TRY(settle(one.comm));
  return {};
}

void send(const Note& note, int peer, ncclComm_t comm) {
  (void)epcclSend(&note, sizeof note, epcclInt8, peer, native(comm), nullptr);  // the group's end tells
}

void receive(Note& note, int peer, ncclComm_t comm) {
  (void)epcclRecv(&note, sizeof note, epcclInt8, peer, native(comm), nullptr);
}

/// Afterwards `mine` is the same on all ranks: the first rank's failure, or rank 0's note.
Status agree(std::vector<Making>& all) {
  EPCCL_TRY(exchange(all, [](Making& one) {
    if (one.rank > 0) return send(one.mine, 0, one.comm);
    one.others.assign(static_cast<size_t>(one.ranks), Note{});
    for (int peer = 1; peer < one.ranks; ++peer)
      receive(one.others[static_cast<size_t>(peer)], peer, one.comm);
  }));
  for (Making& one : all) {
    const auto failed =
        std::ranges::find_if(one.others, [](const Note& note) { return note.failed_rank >= 0; });
    if (one.rank == 0 && one.mine.failed_rank < 0 && failed != one.others.end()) one.mine = *failed;
  }
  return exchange(all, [](Making& one) {
    if (one.rank > 0) return receive(one.mine, 0, one.comm);
    for (int peer = 1; peer < one.ranks; ++peer) send(one.mine, peer, one.comm);
  });
}

Status find_real_here() {
  if (!gpu_present()) return {Code::invalid_usage, "it has no usable GPU (or EPCCL_DEVICE=host)"};
  return real_nccl().status();
}

void offer(Making& one) {
  if (!one.what->needs_id) return;
  note_failure(one, find_real_here());
  if (one.rank == 0 && one.mine.failed_rank < 0 &&
      real_nccl().value().GetUniqueId(&one.mine.id) != ncclSuccess)
    note_failure(one, {Code::system_error, "the real ncclGetUniqueId failed"});
}

// In one group of the real library, each with its device current.
void make_real(std::vector<Making>& all, const RealNccl& real) {
  void* const before = current_context();
  const bool grouped = all.size() > 1;
  if (grouped) (void)real.GroupStart();
  for (Making& one : all) {
    if (one.what->context != nullptr) make_current(one.what->context);
    const ncclResult_t result = one.what->make(real, one.mine.id, &one.real);
    if (result != ncclSuccess)
      note_failure(one, error(Code::device_error, "the real NCCL: {}", real.GetErrorString(result)));
  }
  const ncclResult_t ended = grouped ? real.GroupEnd() : ncclSuccess;
  if (ended != ncclSuccess)
    for (Making& one : all)
      if (one.mine.failed_rank < 0)
        note_failure(one, error(Code::device_error, "the real NCCL: {}", real.GetErrorString(ended)));
  make_current(before);
}

void conclude(const Making& one, const RealNccl* real) {
  auto side = std::make_shared<CudaSide>();
  if (one.mine.failed_rank >= 0) {
    side->why_not =
        error(Code::invalid_usage, "rank {} could not make one: {}", one.mine.failed_rank, one.mine.reason);
    log::warn(log::init, one.rank, "no real NCCL communicator for CUDA memory: {}", side->why_not.message());
    if (one.real != nullptr && real != nullptr && real->CommAbort != nullptr) (void)real->CommAbort(one.real);
  } else {
    side->real = one.real;
    side->library = real;
  }
  add_cuda_side(one.comm, std::move(side));
}

}  // namespace

Status make_cuda_sides(const std::vector<NewSide>& sides) {
  std::vector<Making> all;
  for (const NewSide& side : sides) {
    if (side.handle == nullptr || *side.handle == nullptr) continue;
    Making one{&side, *side.handle, 0, 1, {}, {}, nullptr};
    EPCCL_TRY(settle(one.comm));
    EPCCL_TRY(native_status(epcclCommUserRank(native(one.comm), &one.rank)));
    EPCCL_TRY(native_status(epcclCommCount(native(one.comm), &one.ranks)));
    offer(one);
    all.push_back(std::move(one));
  }
  EPCCL_TRY(agree(all));
  std::vector<Making> possible, impossible;
  for (Making& one : all) (one.mine.failed_rank < 0 ? possible : impossible).push_back(std::move(one));
  for (const Making& one : impossible) conclude(one, nullptr);
  if (possible.empty()) return {};
  EPCCL_ASSIGN(const RealNccl* real, real_nccl().ok() ? Result<const RealNccl*>(&real_nccl().value())
                                                      : Result<const RealNccl*>(real_nccl().status()));
  make_real(possible, *real);
  EPCCL_TRY(agree(possible));
  for (const Making& one : possible) conclude(one, real);
  return {};
}

void mark_for_cuda(ncclUniqueId& id) {
  id.internal[runtime::mark_of_bindings_at] = 1;
}

bool marked_for_cuda(const ncclUniqueId& id) {
  return id.internal[runtime::mark_of_bindings_at] != 0;
}

ncclUniqueId unmarked(ncclUniqueId id) {
  id.internal[runtime::mark_of_bindings_at] = 0;
  return id;
}

}  // namespace epccl::nccl
