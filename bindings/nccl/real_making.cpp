#include "real_making.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "convert.hpp"
#include "cuda_driver.hpp"
#include "native_choice.hpp"
#include "native_group.hpp"

namespace epccl::nccl {
namespace {

void note_failure(Making& one, const Status& status, ncclResult_t code = ncclSuccess) {
  if (status.ok()) return;
  one.mine.failed_rank = one.rank;
  one.mine.code = code;
  status.message().copy(one.mine.reason, sizeof one.mine.reason - 1);
}

// A nonblocking communicator's calls go on in the background, and what a group makes is there at some time of its end.
Status settle(ncclComm_t comm) {
  constexpr useconds_t longest_nap = 1000;  // it may take until the last rank has loaded its weights
  epcclResult_t state = epcclInProgress;
  for (useconds_t nap = 50; state == epcclInProgress; nap = std::min(2 * nap, longest_nap)) {
    EPCCL_TRY(status_of(epcclCommGetAsyncError(native(comm), &state)));
    if (state == epcclInProgress) usleep(nap);
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

Status prepare(Making& one) {
  if (one.comm == nullptr) return {};
  EPCCL_TRY(settle(one.comm));
  EPCCL_TRY(status_of(epcclCommUserRank(native(one.comm), &one.rank)));
  return status_of(epcclCommCount(native(one.comm), &one.ranks));
}

// What this rank has to say before anything is made.
void look_for_real(Making& one) {
  if (one.comm == nullptr) return;
  note_failure(one, find_real_here());
  if (one.rank != 0 || one.mine.failed_rank >= 0) return;
  const RealNccl& real = real_nccl().value();
  if (const ncclResult_t result = real.GetUniqueId(&one.mine.id); result != ncclSuccess)
    note_failure(one, error(Code::system_error, "the real ncclGetUniqueId: {}", real.GetErrorString(result)),
                 result);
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
void settle_real(Making& one, const RealNccl& real, ncclResult_t result) {
  const auto failed = [&](ncclResult_t code) {
    note_failure(one, error(Code::device_error, "the real NCCL: {}", real.GetErrorString(code)), code);
  };
  if (is_failure(result)) return failed(result);  // nothing is under way
  const CudaSide* const parent = one.what.parent.get();
  ncclComm_t const telling = parent != nullptr ? parent->real : *one.real;
  if (real.CommGetAsyncError == nullptr) return;  // a version without nonblocking communicators
  bool was_under_way = result == ncclInProgress || !one.what.wait;
  for (ncclResult_t state = ncclInProgress;; usleep(50)) {
    const ncclResult_t asked = real.CommGetAsyncError(telling, &state);
    if (asked == ncclSuccess && state != ncclInProgress)
      return was_under_way && state != ncclSuccess ? failed(state) : void();
    was_under_way = true;
    if (asked == ncclSuccess && !is_given_up(one)) continue;
    if (parent != nullptr) one.what.parent->children.leave_behind(std::exchange(one.real, {}));
    if (asked != ncclSuccess) return failed(asked);
    return note_failure(one, {Code::remote_error, "it was aborted while the real NCCL made it"});
  }
}

// EPCCL's part needs no real communicator.
Status agree_on_native(std::vector<Making>& all) {
  std::vector<NativeQuestion> questions;
  for (const Making& one : all)
    if (one.comm != nullptr) questions.push_back({one.comm, one.what.context});
  EPCCL_TRY(choose_native(questions));
  auto question = questions.begin();
  for (Making& one : all)
    if (one.comm != nullptr) {
      const NativeAnswers& answered = (question++)->answers;
      one.side->native = answered;
      // What is split off a communicator with a real one has one, which the real library makes with all of its ranks.
      if (answered.asked_for_all && one.what.needs_id) one.what.why_not = runs_everything();
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
  const bool grouped = all.size() > 1;
  std::vector<ncclResult_t> results;
  if (grouped) (void)real.GroupStart();
  for (Making* one : all) {
    const WithContext current(
        one->what.context);  // none: the real library takes GPU 0 then, whichever came before
    results.push_back(one->what.make(real, one->mine.id, one->real.get()));
    if (one->side->context == nullptr) one->side->context = current_context();
  }
  const ncclResult_t ended = grouped ? real.GroupEnd() : ncclSuccess;
  for (size_t i = 0; i < all.size(); ++i) {
    settle_real(*all[i], real, worse(results[i], ended));
    leave_real(*all[i]);
  }
}

// What was begun, also where that failed, is the program's to end.
void give_up_real(Making& one, const RealNccl& real) {
  if (one.real != nullptr && *one.real != nullptr && real.CommAbort != nullptr)
    (void)real.CommAbort(std::exchange(*one.real, nullptr));
}

// A real library that is missing, or is not for all ranks, is no failure: nobody may need it. One that all ranks have and that fails is,
// as in NCCL, unless EPCCL runs calls with CUDA memory without it. All ranks have the same note.
Status failure_of(const Making& one) {
  const Note& note = one.mine;
  if (note.code == 0 || one.side->native.anything()) return {};
  const Code code = note.failed_rank == one.rank ? static_cast<Code>(note.code) : Code::remote_error;
  return error(
      code,
      "a communicator of the real NCCL is needed for CUDA memory (EPCCL_DEVICE=host does without), and "
      "rank {} could not make one: {}",
      note.failed_rank, note.reason);
}

void conclude_without_real(const Making& one) {
  if (one.comm == nullptr) return;
  if (one.mine.failed_rank >= 0) {
    one.side->why_not =
        error(Code::invalid_usage, "rank {} could not make one: {}", one.mine.failed_rank, one.mine.reason);
    one.side->failure = failure_of(one);
    // One that is missing is no matter where all calls run without.
    if (one.mine.code == 0 && one.side->native.alltoall && one.side->native.groups &&
        one.side->runs_collectives())
      log::info(log::init, one.rank, "EPCCL runs all calls with CUDA memory, without the real NCCL: {}",
                one.side->why_not.message());
    else
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

}  // namespace

std::vector<Making> to_be_made(std::vector<NewSide> sides) {
  std::vector<Making> all;
  for (NewSide& side : sides) {
    Making one;
    one.comm = *side.handle;
    one.side->blocking = side.blocking;
    one.side->context = side.context;
    one.what = std::move(side);
    all.push_back(std::move(one));
  }
  return all;
}

Status make_all(std::vector<Making>& all) {
  std::vector<Making*> joining, possible;
  for (Making& one : all) EPCCL_TRY(prepare(one));
  EPCCL_TRY(agree_on_native(all));
  for (Making& one : all) {
    if (!one.what.needs_id || !one.what.why_not.ok()) continue;
    look_for_real(one);
    joining.push_back(&one);
  }
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

}  // namespace epccl::nccl
