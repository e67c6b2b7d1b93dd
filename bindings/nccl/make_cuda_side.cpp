#include "make_cuda_side.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "base/log.hpp"
#include "convert.hpp"
#include "cuda_driver.hpp"
#include "cuda_side.hpp"
#include "last_error.hpp"
#include "native_choice.hpp"
#include "native_group.hpp"
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
  NewSide what;
  ncclComm_t comm = nullptr;  // NULL: this rank has none, but takes part in making it
  CudaSidePtr side = std::make_shared<CudaSide>();
  int rank = 0, ranks = 1;
  Note mine;                 // then what was agreed
  std::vector<Note> others;  // on rank 0
  RealChildren::Slot real = std::make_shared<ncclComm_t>(nullptr);
};

void note_failure(Making& one, const Status& status) {
  if (status.ok()) return;
  one.mine.failed_rank = one.rank;
  status.message().copy(one.mine.reason, sizeof one.mine.reason - 1);
}

// A nonblocking communicator's calls go on in the background.
Status settle(ncclComm_t comm) {
  epcclResult_t state = epcclInProgress;
  while (state == epcclInProgress) {
    EPCCL_TRY(status_of(epcclCommGetAsyncError(native(comm), &state)));
    if (state == epcclInProgress) usleep(50);
  }
  return state == epcclSuccess ? Status{} : Status(static_cast<Code>(state), epcclGetLastError(native(comm)));
}

void send(const Note& note, int peer, ncclComm_t comm) {
  (void)epcclSend(&note, sizeof note, epcclInt8, peer, native(comm), nullptr);  // the group's end tells
}

void receive(Note& note, int peer, ncclComm_t comm) {
  (void)epcclRecv(&note, sizeof note, epcclInt8, peer, native(comm), nullptr);
}

/// Afterwards `mine` is the same on all ranks: the first rank's failure, or rank 0's note.
Status agree(std::vector<Making*> all) {
  std::erase_if(all, [](const Making* one) { return one->comm == nullptr; });
  EPCCL_TRY(in_one_native_group(all.size(), [&](size_t i) {
    Making& one = *all[i];
    if (one.rank > 0) return send(one.mine, 0, one.comm);
    one.others.assign(static_cast<size_t>(one.ranks), Note{});
    for (int peer = 1; peer < one.ranks; ++peer)
      receive(one.others[static_cast<size_t>(peer)], peer, one.comm);
  }));
  for (Making* one : all) {
    const auto failed =
        std::ranges::find_if(one->others, [](const Note& note) { return note.failed_rank >= 0; });
    if (one->rank == 0 && one->mine.failed_rank < 0 && failed != one->others.end()) one->mine = *failed;
  }
  return in_one_native_group(all.size(), [&](size_t i) {
    Making& one = *all[i];
    if (one.rank > 0) return receive(one.mine, 0, one.comm);
    for (int peer = 1; peer < one.ranks; ++peer) send(one.mine, peer, one.comm);
  });
}

Status find_real_here() {
  if (!gpu_present()) return {Code::invalid_usage, "it has no usable GPU (or EPCCL_DEVICE=host or cuda)"};
  return real_nccl().status();
}

// What this rank has to say before anything is made.
Status prepare(Making& one) {
  if (one.comm == nullptr) return {};
  EPCCL_TRY(settle(one.comm));
  EPCCL_TRY(status_of(epcclCommUserRank(native(one.comm), &one.rank)));
  EPCCL_TRY(status_of(epcclCommCount(native(one.comm), &one.ranks)));
  if (!one.what.needs_id) return {};
  note_failure(one, find_real_here());
  if (one.rank == 0 && one.mine.failed_rank < 0 &&
      real_nccl().value().GetUniqueId(&one.mine.id) != ncclSuccess)
    note_failure(one, {Code::system_error, "the real ncclGetUniqueId failed"});
  return {};
}

bool in_background(const Making& one) {
  return one.side->maker != nullptr;
}

bool is_given_up(const Making& one) {
  return in_background(one) &&
         (one.side->maker->stop || (one.what.parent != nullptr && one.what.parent->children.is_closing()));
}

// Of a nonblocking communicator the real library makes it in its background. How far it is a new one tells itself, but a split or
// shrink, whose handle is written at the end, on its parent.
Status settle_real(Making& one, const RealNccl& real, ncclResult_t result) {
  const auto failed = [&](ncclResult_t code) {
    return error(Code::device_error, "the real NCCL: {}", real.GetErrorString(code));
  };
  if (is_failure(result)) return failed(result);  // nothing is under way
  const CudaSide* const parent = one.what.parent.get();
  ncclComm_t const telling = parent != nullptr ? parent->real : *one.real;
  if (real.CommGetAsyncError == nullptr) return {};  // a version without nonblocking communicators
  bool was_under_way = result == ncclInProgress || !one.what.wait;
  for (ncclResult_t state = ncclInProgress;; usleep(50)) {
    const ncclResult_t asked = real.CommGetAsyncError(telling, &state);
    if (asked == ncclSuccess && state != ncclInProgress)
      return was_under_way && state != ncclSuccess ? failed(state) : Status{};
    was_under_way = true;
    if (asked == ncclSuccess && !is_given_up(one)) continue;
    if (parent != nullptr) one.what.parent->children.leave_behind(std::exchange(one.real, {}));
    return asked != ncclSuccess ? failed(asked)
                                : Status{Code::remote_error, "it was aborted while the real NCCL made it"};
  }
}

// EPCCL's part needs no real communicator.
Status agree_on_native(std::vector<Making>& all) {
  std::vector<NativeQuestion> questions;
  for (const Making& one : all)
    if (one.comm != nullptr) questions.push_back({one.comm, one.what.context});
  EPCCL_TRY(choose_native(questions));
  auto question = questions.begin();
  for (const Making& one : all)
    if (one.comm != nullptr) {
      one.side->native_alltoall = question->alltoall;
      one.side->native_groups = (question++)->groups;
    }
  return {};
}

// Another thread may be ending the parent.
bool enter_real(Making& one) {
  if (one.what.parent == nullptr || !in_background(one) || one.what.parent->children.enter()) return true;
  note_failure(one, {Code::remote_error, "the communicator it is made of was aborted"});
  return false;
}

void leave_real(const Making& one) {
  if (one.what.parent != nullptr && in_background(one)) one.what.parent->children.leave();
}

// In one group of the real library, each with its device current.
void make_real(std::vector<Making*> all, const RealNccl& real) {
  std::erase_if(all, [](Making* one) { return !enter_real(*one); });
  void* const before = current_context();
  const bool grouped = all.size() > 1;
  std::vector<ncclResult_t> results;
  if (grouped) (void)real.GroupStart();
  for (Making* one : all) {
    if (one->what.context != nullptr) make_current(one->what.context);
    results.push_back(one->what.make(real, one->mine.id, one->real.get()));
    if (one->side->context == nullptr) one->side->context = current_context();
  }
  const ncclResult_t ended = grouped ? real.GroupEnd() : ncclSuccess;
  for (size_t i = 0; i < all.size(); ++i) {
    note_failure(*all[i], settle_real(*all[i], real, worse(results[i], ended)));
    leave_real(*all[i]);
  }
  make_current(before);
}

// What was begun, also where that failed, is the program's to end.
void give_up_real(Making& one, const RealNccl& real) {
  if (one.real != nullptr && *one.real != nullptr && real.CommAbort != nullptr)
    (void)real.CommAbort(std::exchange(*one.real, nullptr));
}

void conclude_without_real(const Making& one) {
  if (one.comm == nullptr) return;
  if (one.mine.failed_rank >= 0) {
    one.side->why_not =
        error(Code::invalid_usage, "rank {} could not make one: {}", one.mine.failed_rank, one.mine.reason);
    log::warn(log::init, one.rank, "no real NCCL communicator for CUDA memory: {}",
              one.side->why_not.message());
  } else {
    one.side->why_not = one.what.why_not;
  }
  one.side->ready = true;
}

void conclude(Making& one, const RealNccl& real) {
  if (one.mine.failed_rank >= 0) {
    give_up_real(one, real);
    return conclude_without_real(one);
  }
  if (one.comm == nullptr) return;
  one.side->real = *one.real;
  one.side->library = &real;
  one.side->ready = true;
}

Status make_all(std::vector<Making>& all) {
  std::vector<Making*> joining, possible;
  for (Making& one : all) {
    EPCCL_TRY(prepare(one));
    if (one.what.needs_id) joining.push_back(&one);
  }
  EPCCL_TRY(agree_on_native(all));
  EPCCL_TRY(agree(joining));
  for (Making& one : all)
    if (one.mine.failed_rank < 0 && one.what.why_not.ok())
      possible.push_back(&one);
    else
      conclude_without_real(one);
  if (possible.empty()) return {};
  EPCCL_TRY(Status(real_nccl().status()));
  const RealNccl& real = real_nccl().value();
  make_real(possible, real);
  if (Status agreed = agree(possible); !agreed.ok()) {
    for (Making* one : possible) give_up_real(*one, real);
    return agreed;
  }
  for (Making* one : possible) conclude(*one, real);
  return {};
}

ncclResult_t make_now(std::vector<Making> all) {
  const Status made = make_all(all);
  for (const Making& one : all) {
    if (one.comm == nullptr) continue;
    if (made.ok()) {
      add_cuda_side(one.comm, one.side);
    } else {
      (void)epcclCommAbort(native(one.comm));
      *one.what.handle = nullptr;
    }
  }
  return refuse(made);
}

// The communicator is the program's, which will ask it; its other ranks may be waiting for what this one will not say.
void fail_in_background(const Making& one, const Status& why) {
  if (one.comm == nullptr || one.side->ready) return;
  if (!one.side->maker->stop) (void)epcclCommRevoke(native(one.comm), EPCCL_REVOKE_DEFAULT);
  one.side->why_not = why;
  one.side->failure = why;
  one.side->ready = true;
}

// The communicators are the program's already, and in progress until this is over.
void start_maker(std::vector<Making> all) {
  const auto maker = std::make_shared<Maker>();
  std::vector<std::pair<ncclComm_t, CudaSidePtr>> sides;
  for (const Making& one : all) {
    one.side->maker = maker;
    if (one.comm != nullptr) sides.emplace_back(one.comm, one.side);
    if (one.what.parent != nullptr) one.what.parent->children.begin();
  }
  maker->thread = std::thread([all = std::move(all)]() mutable {
    const Status made = make_all(all);
    for (const Making& one : all)
      if (!made.ok()) fail_in_background(one, made);
    for (const Making& one : all)
      if (one.what.parent != nullptr) one.what.parent->children.end();
  });
  // Not before there is a thread to wait for: another thread may abort at once.
  for (auto& [comm, side] : sides) add_cuda_side(comm, std::move(side));
}

// Each by itself, so that one can be aborted and the others go on; but those of one parent together, which NVIDIA's library makes in
// one go or not at all.
ncclResult_t make_in_background(std::vector<Making> all) {
  while (!all.empty()) {
    const CudaSidePtr parent = all.front().what.parent;
    const auto others = std::stable_partition(all.begin() + 1, all.end(), [&](const Making& one) {
      return parent != nullptr && one.what.parent == parent;
    });
    std::vector<Making> together(std::move_iterator(all.begin()), std::move_iterator(others));
    all.erase(all.begin(), others);
    start_maker(std::move(together));
  }
  return ncclInProgress;
}

}  // namespace

ncclResult_t make_cuda_sides(std::vector<NewSide> sides) {
  std::vector<Making> all;
  bool wait = true;
  for (NewSide& side : sides) {
    Making one;
    one.comm = *side.handle;
    one.side->blocking = side.blocking;
    one.side->context = side.context;
    wait = wait && side.wait;
    one.what = std::move(side);
    all.push_back(std::move(one));
  }
  return wait ? make_now(std::move(all)) : make_in_background(std::move(all));
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
