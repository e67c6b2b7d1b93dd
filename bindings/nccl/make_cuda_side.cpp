#include "make_cuda_side.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "base/per_process.hpp"
#include "base/thread.hpp"
#include "convert.hpp"
#include "cuda_side.hpp"
#include "last_error.hpp"
#include "native_choice.hpp"
#include "real_making.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::nccl {
namespace {

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
  // First the real library, so that its own end comes after that. (Not where this rank wants none of it: should another rank's
  // settings bring it all the same, its end comes before.)
  if (gpu_present() && !wants_everything_native()) (void)real_nccl();
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