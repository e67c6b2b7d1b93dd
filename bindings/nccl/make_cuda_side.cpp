#include "make_cuda_side.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/per_process.hpp"
#include "base/thread.hpp"
#include "convert.hpp"
#include "cuda_driver.hpp"
#include "cuda_side.hpp"
#include "last_error.hpp"
#include "native_choice.hpp"
#include "native_group.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::nccl {

/// What a rank tells the first, and the first tells all.
struct Note {
  int failed_rank = -1;
  int code = 0;  // of the real library, where it was that which failed; 0: it was not asked, or not to go on
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

// What this rank has to say before anything is made.
Status prepare(Making& one) {
  if (one.comm == nullptr) return {};
  EPCCL_TRY(settle(one.comm));
  EPCCL_TRY(status_of(epcclCommUserRank(native(one.comm), &one.rank)));
  EPCCL_TRY(status_of(epcclCommCount(native(one.comm), &one.ranks)));
  if (!one.what.needs_id) return {};
  note_failure(one, find_real_here());
  if (one.rank != 0 || one.mine.failed_rank >= 0) return {};
  const RealNccl& real = real_nccl().value();
  if (const ncclResult_t result = real.GetUniqueId(&one.mine.id); result != ncclSuccess)
    note_failure(one, error(Code::system_error, "the real ncclGetUniqueId: {}", real.GetErrorString(result)),
                 result);
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
  if (note.code == 0 || one.side->native_alltoall || one.side->native_groups) return {};
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

// Where all ranks know that it failed none waits for another.
Status make_now(std::vector<Making> all) {
  const Status made = make_all(all);
  Status first = made;
  for (const Making& one : all) {
    if (one.comm == nullptr) continue;
    const Status& failure = one.side->failure;
    if (made.ok() && failure.ok()) {
      add_cuda_side(one.comm, one.side);
      continue;
    }
    (void)(made.ok() ? epcclCommDestroy(native(one.comm)) : epcclCommAbort(native(one.comm)));
    __atomic_store_n(one.what.handle, nullptr, __ATOMIC_RELEASE);  // as EPCCL's part does where it fails
    if (first.ok()) first = failure;
  }
  return first;
}

// The communicator is the program's, which will ask it; its other ranks may be waiting for what this one will not say.
void fail_in_background(const Making& one, const Status& why) {
  if (one.comm == nullptr || one.side->ready) return;
  if (!one.side->maker->stop) (void)epcclCommRevoke(native(one.comm), EPCCL_REVOKE_DEFAULT);
  one.side->why_not = why;
  one.side->failure = why;
  one.side->ready = true;
}

/// Those of ranks that get no communicator, too.
class Makers {
 public:
  void add(const std::shared_ptr<Maker>& maker) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const std::weak_ptr<Maker>& each) { return each.expired(); });
    all_.push_back(maker);
  }
  std::vector<std::shared_ptr<Maker>> under_way() {
    std::vector<std::shared_ptr<Maker>> found;
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Maker>& each : all_)
      if (auto maker = each.lock(); maker != nullptr && !maker->is_over) found.push_back(std::move(maker));
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Maker>> all_;
};

// A forked child has none: the threads are its parent's.
Makers& makers() {
  static PerProcess<Makers> instance;
  return *instance;
}

/// When the process ends regularly, threads that still make communicators give up, for what they use ends with it. One that the real
/// library keeps is waited for in vain; the process ends all the same.
struct GiveUpAtExit {
  ~GiveUpAtExit() {
    constexpr int patience = 1000;  // milliseconds
    const auto under_way = makers().under_way();
    for (const auto& maker : under_way) maker->stop = true;
    for (const auto& [comm, side] : sides_in_making()) (void)epcclCommAbort(native(comm));
    const auto are_over = [&] {
      return std::ranges::all_of(under_way, [](const auto& maker) { return maker->is_over.load(); });
    };
    for (int waited = 0; waited < patience && !are_over(); ++waited) usleep(1000);
  }
};

/// The parent has a child in making while it lives.
class OfParent {
 public:
  explicit OfParent(CudaSidePtr parent) : parent_(std::move(parent)) { parent_->children.begin(); }
  OfParent(OfParent&& other) noexcept = default;
  OfParent(const OfParent&) = delete;
  OfParent& operator=(const OfParent&) = delete;
  OfParent& operator=(OfParent&&) = delete;
  ~OfParent() {
    if (parent_ != nullptr) parent_->children.end();
  }

 private:
  CudaSidePtr parent_;
};

// The communicators are the program's already, and in progress until this is over.
void start_maker(std::vector<Making> all) {
  // First the real library, so that its own end comes after that.
  if (gpu_present()) (void)real_nccl();
  static const GiveUpAtExit at_exit;
  const auto maker = std::make_shared<Maker>();
  makers().add(maker);
  std::vector<std::pair<ncclComm_t, CudaSidePtr>> sides;
  std::vector<OfParent> of_parents;
  for (const Making& one : all) {
    one.side->maker = maker;
    if (one.comm != nullptr) sides.emplace_back(one.comm, one.side);
    if (one.what.parent != nullptr) of_parents.emplace_back(one.what.parent);
  }
  struct Kept {
    std::vector<Making> all;
    std::vector<OfParent> of_parents;
  };
  const auto kept = std::make_shared<Kept>(Kept{std::move(all), std::move(of_parents)});
  maker->thread = start_thread([kept, its = maker.get()] {
    const Status made = make_all(kept->all);
    for (const Making& one : kept->all)
      if (!made.ok()) fail_in_background(one, made);
    kept->of_parents.clear();
    its->is_over = true;
  });
  // Not before there is a thread to wait for: another thread may abort at once.
  for (auto& [comm, side] : sides) add_cuda_side(comm, std::move(side));
}

// Each by itself, so that one can be aborted, or be late, and the others go on; but those of one parent together, which NVIDIA's library
// makes in one go or not at all.
std::vector<std::vector<Making>> in_bunches(std::vector<Making> all) {
  std::vector<std::vector<Making>> bunches;
  while (!all.empty()) {
    const CudaSidePtr parent = all.front().what.parent;
    const auto others = std::stable_partition(all.begin() + 1, all.end(), [&](const Making& one) {
      return parent != nullptr && one.what.parent == parent;
    });
    bunches.emplace_back(std::move_iterator(all.begin()), std::move_iterator(others));
    all.erase(all.begin(), others);
  }
  return bunches;
}

ncclResult_t make_in_background(std::vector<Making> all) {
  for (std::vector<Making>& bunch : in_bunches(std::move(all))) start_maker(std::move(bunch));
  return ncclInProgress;
}

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

bool all_wait(const std::vector<NewSide>& sides) {
  return std::ranges::all_of(sides, &NewSide::wait);
}

}  // namespace

ncclResult_t make_cuda_sides(std::vector<NewSide> sides) {
  const bool wait = all_wait(sides);
  std::vector<Making> all = to_be_made(std::move(sides));
  return wait ? refuse(make_now(std::move(all))) : make_in_background(std::move(all));
}

SidesOfGroup::SidesOfGroup(std::vector<NewSide> sides, bool may_begin) {
  const bool wait = all_wait(sides);
  if (!wait || sides.size() < 2 || !may_begin) {
    later_ = std::move(sides);
    return;
  }
  for (std::vector<Making>& bunch : in_bunches(to_be_made(std::move(sides)))) begin(std::move(bunch));
}

void SidesOfGroup::begin(std::vector<Making> bunch) {
  const auto put_off = [this](std::vector<Making>& all) {
    for (Making& one : all) later_.push_back(std::move(one.what));
  };
  // Without a communicator of its own (NCCL_SPLIT_NOCOLOR) there is nothing by which a maker knows that EPCCL's part went well.
  if (std::ranges::all_of(bunch, [](const Making& one) { return one.comm == nullptr; }))
    return put_off(bunch);
  const auto kept = std::make_shared<std::vector<Making>>(std::move(bunch));
  const auto make =
      std::make_shared<std::packaged_task<Status()>>([kept] { return make_now(std::move(*kept)); });
  for (const Making& one : *kept)
    if (one.comm != nullptr) comms_.push_back(one.comm);
  threads_.reserve(threads_.size() + 1);
  under_way_.reserve(under_way_.size() + 1);
  try {
    threads_.push_back(start_thread([make] { (*make)(); }));
    under_way_.push_back(make->get_future());
  } catch (const std::system_error&) {  // the system has no more threads
    put_off(*kept);
  }
}

// What was put off may be other ranks' part of what the threads make, who wait for it.
ncclResult_t SidesOfGroup::finish(bool group_ran) {
  const ncclResult_t late =
      group_ran && !later_.empty() ? make_cuda_sides(std::exchange(later_, {})) : ncclSuccess;
  for (std::thread& each : std::exchange(threads_, {})) each.join();
  Status first;
  for (std::future<Status>& each : under_way_)
    if (Status made = each.get(); first.ok()) first = std::move(made);
  return worse(refuse(first), late);
}

// Only where memory ran out before finish(): nobody tells the threads of a group that did not run.
SidesOfGroup::~SidesOfGroup() {
  if (threads_.empty()) return;
  for (ncclComm_t each : comms_) (void)epcclCommAbort(native(each));
  for (std::thread& each : threads_) each.join();
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
