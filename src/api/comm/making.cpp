// What makes communicators: init, split, shrink. Each is a job: it waits for other ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "api/comm/comm_options.hpp"
#include "api/groups/group.hpp"
#include "api/handles/arguments.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "base/caught.hpp"
#include "device/cuda/cuda_device.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::api {
namespace {

using runtime::Gathering;

void store(epcclComm_t* where, epcclComm_t comm) {
  __atomic_store_n(where, comm, __ATOMIC_RELEASE);
}

/// A communicator that is being made: its handle is there at once, so that it can be asked about and aborted.
class Making {
 public:
  /// `parent`: of a split or shrink, else null. `out` is where the handle goes.
  static Result<std::shared_ptr<Making>> start(epcclComm_t* out, const runtime::CommOptions& options,
                                               int device, HandlePtr parent) {
    auto making = std::make_shared<Making>();
    EPCCL_ASSIGN(making->interrupt_, Interrupt::create());
    making->out_ = out;
    making->parent_ = std::move(parent);
    making->handle_ = std::make_shared<CommHandle>(options, device, making->parent_ != nullptr);
    making->handle_->add_interrupt(making->interrupt_);
    if (making->parent_ != nullptr) making->parent_->add_interrupt(making->interrupt_);
    making->blocking_ =
        making->parent_ != nullptr ? making->parent_->blocking() : making->handle_->blocking();
    return making;
  }

  /// Gives the handle out. Without it there will be no communicator.
  void show() {
    comm_ = add_handle(handle_);
    store(out_, comm_);
  }

  bool blocking() const { return blocking_; }
  bool has_parent() const { return parent_ != nullptr; }
  const HandlePtr& parent_handle() const { return parent_; }
  const std::shared_ptr<Interrupt>& interrupt() const { return interrupt_; }
  const HandlePtr& handle() const { return handle_; }
  const runtime::CommOptions& options() const { return handle_->options(); }
  /// Until the end.
  runtime::Communicator& parent() const { return *parent_communicator_; }
  /// 0: as its config says.
  void set_timeout_of_calls(double seconds) { timeout_of_calls_ = seconds; }
  void keep_parent(CommPtr communicator) { parent_communicator_ = std::move(communicator); }

  void begin() {
    if (blocking_) return;
    handle_->begin_background();
    if (parent_ != nullptr) parent_->begin_background();
  }

  void cancel() {
    if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
    forget();
  }

  /// As cancel(), where nothing of the caller's may be written to: the handle stays, and tells why there is no communicator.
  void drop(const Status& why) {
    handle_->remove_interrupt(interrupt_);
    if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
    handle_->fail(why);
  }

  /// Ends join(), unless all have come. Any thread.
  void stop_waiting() {
    const std::lock_guard lock(mutex_);
    if (!has_met_) interrupt_->fire();
  }

  /// Joins the others where `gathering` says. Nowhere: this rank is in no new communicator.
  Status join(const std::optional<Gathering>& gathering) {
    if (!gathering) return {};
    EPCCL_ASSIGN(runtime::CommParts parts, runtime::set_up(*gathering, options(), interrupt_));
    {
      const std::lock_guard lock(mutex_);
      has_met_ = true;
    }
    if (parent_communicator_ != nullptr) parts.origin = parent_communicator_->origin();
    auto communicator = std::make_shared<runtime::Communicator>(std::move(parts));
    if (timeout_of_calls_ > 0) communicator->set_timeout(timeout_of_calls_);
    EPCCL_TRY(communicator->begin());
    // From here on the parent's end is nothing to it: what fires the interrupt would end calls of the new communicator.
    if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
    if (interrupt_->fired()) {
      communicator->abort();
      return {Code::remote_error,
              "the communicator was aborted, or its parent revoked, while it was being made"};
    }
    if (handle_->complete(std::move(communicator))) return {};
    return {Code::remote_error, "the communicator was aborted while it was being made"};
  }

  /// Tells everybody how it ended; gives `status` back.
  Status end(Status status) {
    parent_communicator_
        .reset();  // before the parent can be destroyed: who does that shall be the last to have it
    // From here on the new communicator is on its own: aborting the parent is nothing to it.
    handle_->remove_interrupt(interrupt_);
    if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
    if (!status.ok()) handle_->fail(status);
    if (!status.ok() && blocking_) forget();
    if (!blocking_) {
      handle_->end_background(status);
      if (parent_ != nullptr) parent_->end_background(status);
    }
    return status;
  }

 private:
  void forget() {
    if (comm_ == nullptr) return;
    static_cast<void>(remove_handle(comm_, End::failed));  // gone already where it was aborted
    store(out_, nullptr);
  }

  epcclComm_t* out_ = nullptr;
  epcclComm_t comm_ = nullptr;
  HandlePtr handle_, parent_;
  CommPtr parent_communicator_;
  std::shared_ptr<Interrupt> interrupt_;
  bool blocking_ = true;
  double timeout_of_calls_ = 0;
  std::mutex mutex_;
  bool has_met_ = false;  // from then on the interrupt is the communicator's
};

using MakingPtr = std::shared_ptr<Making>;

/// `begin` may be empty. `run` does the work.
Status submit_making(const MakingPtr& making, const std::function<void()>& begin,
                     const std::function<Status()>& run) {
  Job job;
  job.begin = [making, begin] {
    making->begin();
    if (begin) begin();
  };
  job.run = [making, run] { return making->end(caught(run)); };  // how it ended must be told
  job.cancel = [making] { making->cancel(); };
  job.blocking = making->blocking();
  job.drop = [making](const Status& why) { making->drop(why); };
  job.handle = making->handle();
  job.parent = making->parent_handle();
  if (!making->has_parent()) job.interrupt = [making] { making->stop_waiting(); };
  return submit(std::move(job));
}

runtime::UniqueId to_unique_id(const epcclUniqueId& id) {
  runtime::UniqueId unique_id;
  static_assert(sizeof id.internal == sizeof unique_id.bytes);
  std::memcpy(unique_id.bytes.data(), id.internal, unique_id.bytes.size());
  return unique_id;
}

Status init(epcclComm_t* comm, const Gathering& gathering, const runtime::CommOptions& options, int device) {
  if (comm == nullptr) return {Code::invalid_argument, "comm is NULL"};
  store(comm, nullptr);
  if (gathering.ranks < 1) return error(Code::invalid_argument, "nranks {} is not positive", gathering.ranks);
  EPCCL_TRY(check_rank("rank", gathering.rank, gathering.ranks));
  EPCCL_ASSIGN(const MakingPtr making, Making::start(comm, options, device, nullptr));
  making->show();
  return submit_making(making, {}, [making, gathering] { return making->join(gathering); });
}

Status init_with_config(epcclComm_t* comm, const Gathering& gathering, const epcclConfig_t* config) {
  if (comm == nullptr) return {Code::invalid_argument, "comm is NULL"};
  store(comm, nullptr);
  EPCCL_ASSIGN(runtime::CommOptions options, read_config(config));
  options.gpu = device::current_cuda_device();
  return init(comm, gathering, options, 0);
}

Status check_ids(const std::vector<runtime::UniqueId>& ids) {
  std::map<decltype(runtime::UniqueId::bytes), size_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    EPCCL_TRY(runtime::check_unique_id(ids[i]).with_context(fmt::format("commIds[{}]", i)));
    if (const auto [first, is_new] = places.insert({ids[i].bytes, i}); !is_new)
      return error(Code::invalid_argument, "commIds[{}] is commIds[{}] once more", i, first->second);
  }
  return {};
}

// One place is where ranks meet, and where the communicator's control line is from then on: other roots would have to hand on to it
// what each of their ranks has to say.
Status init_scalable(epcclComm_t* comm, int nranks, int rank, int count, const epcclUniqueId* given,
                     const epcclConfig_t* config) {
  if (comm == nullptr) return {Code::invalid_argument, "newcomm is NULL"};
  store(comm, nullptr);
  if (given == nullptr) return {Code::invalid_argument, "commIds is NULL"};
  if (count < 1 || count > nranks)
    return error(Code::invalid_argument, "nId {} is not in 1..nranks ({})", count, nranks);
  std::vector<runtime::UniqueId> ids;
  for (const epcclUniqueId& each : std::span(given, static_cast<size_t>(count)))
    ids.push_back(to_unique_id(each));
  EPCCL_TRY(check_ids(ids));
  Gathering gathering{ids.front(), 0, rank, nranks};
  if (count > 1) gathering.ids = runtime::digest(ids);
  for (const runtime::UniqueId& unused : std::span(ids).subspan(1))
    runtime::discard_unique_id(
        unused, "its ranks meet at the first of several ids: some were given another one first");
  return init_with_config(comm, gathering, config);
}

Status init_all(epcclComm_t* comms, int ndev, const int* devlist) {
  if (comms == nullptr) return {Code::invalid_argument, "comms is NULL"};
  if (ndev < 1) return error(Code::invalid_argument, "ndev {} is not positive", ndev);
  std::fill_n(comms, ndev, nullptr);
  for (int rank = 0; devlist != nullptr && rank < ndev; ++rank)
    if (devlist[rank] < 0)
      return error(Code::invalid_argument, "devlist[{}] is {}: not a device", rank, devlist[rank]);
  EPCCL_ASSIGN(const runtime::UniqueId id, runtime::create_unique_id());
  // Ranks that share GPUs, or have none, are no devices of the list; but where there is one GPU, it is that one.
  int gpus = 0;
  if (device::current_cuda_device())
    if (const auto count = device::cuda_device_count(); count.ok()) gpus = *count;
  EPCCL_TRY(group_start());
  Status status = caught([&]() -> Status {
    for (int rank = 0; rank < ndev; ++rank) {
      const int device = devlist != nullptr ? devlist[rank] : rank;
      runtime::CommOptions options;
      if (gpus >= ndev && device < gpus) options.gpu = device;
      if (gpus == 1) options.gpu = 0;
      static_cast<void>(refuse(init(comms + rank, {id, 0, rank, ndev}, options, device)));
    }
    return {};
  });
  if (!status.ok()) static_cast<void>(refuse(status));  // then the group runs nothing
  if (Status ended = group_end(); status.ok()) status = std::move(ended);
  // All or none.
  for (int rank = 0; !status.ok() && rank < ndev; ++rank) {
    if (comms[rank] == nullptr) continue;
    if (const auto handle = remove_handle(comms[rank], End::failed); handle.ok()) handle.value()->abort();
    comms[rank] = nullptr;
  }
  if (!status.ok()) runtime::discard_unique_id(id);
  return status;
}

/// The parent of a split or shrink, also where it can do nothing else any more.
struct Parent {
  HandlePtr handle;
  CommPtr communicator;
};

Result<Parent> find_parent(epcclComm_t comm) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  EPCCL_ASSIGN(const CommPtr communicator, handle->communicator());
  if (communicator->finalized())
    return error(Code::invalid_usage, "rank {}: the communicator has been finalized", communicator->rank());
  return Parent{handle, communicator};
}

Result<MakingPtr> start_child(const Parent& parent, epcclComm_t* newcomm, const epcclConfig_t* config) {
  runtime::CommOptions options = parent.handle->options();
  // Its calls wait as long as the parent's, and to make it no shorter than that, unless these wait for ever.
  double of_calls = parent.communicator->timeout_that_was_set();
  if (of_calls > parent.communicator->config().wait.timeout_seconds && std::isfinite(of_calls))
    options.timeout_seconds = of_calls;
  if (config != nullptr) {
    of_calls = 0;
    EPCCL_ASSIGN(options, read_config(config));
  }
  options.gpu = parent.handle->options().gpu;
  if (const auto current = device::current_cuda_device()) options.gpu = current;
  EPCCL_ASSIGN(const MakingPtr making,
               Making::start(newcomm, options, parent.handle->device(), parent.handle));
  making->keep_parent(parent.communicator);
  making->set_timeout_of_calls(of_calls);
  return making;
}

// Those of one colour, once all have said theirs.
Result<std::optional<Gathering>> gather_split(runtime::Communicator& parent,
                                              const std::vector<runtime::SplitChoice>& choices,
                                              runtime::Absence absence) {
  const std::vector<int> members = runtime::split_members(choices, parent.rank());
  if (members.empty()) return std::optional<Gathering>{};
  EPCCL_ASSIGN(const Gathering gathering, parent.regroup().gather(members, absence));
  return std::optional(gathering);
}

Status run_split(const MakingPtr& making, runtime::Communicator& parent, uint64_t ticket,
                 const runtime::SplitChoice& mine) {
  Result<std::optional<Gathering>> gathering = std::optional<Gathering>{};
  // In turn: members count their gatherings, all in the same order.
  if (parent.revoked()) {
    EPCCL_TRY(parent.pass(ticket, [&]() -> Status {
      EPCCL_ASSIGN(const auto choices, parent.regroup().exchange_choices_anew(mine, making->interrupt()));
      gathering = gather_split(parent, choices, runtime::Absence::gone);
      return {};
    }));
  } else {
    EPCCL_TRY(parent.run(ticket, [&]() -> Status {
      EPCCL_ASSIGN(const auto choices, parent.exchange_choices(mine));
      gathering = gather_split(parent, choices, runtime::Absence::or_failed);
      return {};
    }));
  }
  EPCCL_TRY(gathering.status());
  return making->join(*gathering);
}

Status split(epcclComm_t comm, int color, int key, epcclComm_t* newcomm, const epcclConfig_t* config) {
  if (newcomm == nullptr) return {Code::invalid_argument, "newcomm is NULL"};
  store(newcomm, nullptr);
  EPCCL_ASSIGN(const Parent parent, find_parent(comm));
  if (color < 0 && color != EPCCL_SPLIT_NOCOLOR)
    return error(Code::invalid_argument, "color {} is neither >= 0 nor EPCCL_SPLIT_NOCOLOR ({})", color,
                 EPCCL_SPLIT_NOCOLOR);
  EPCCL_ASSIGN(const MakingPtr making, start_child(parent, newcomm, config));
  if (color != EPCCL_SPLIT_NOCOLOR) making->show();
  const runtime::SplitChoice mine{color, key};
  const auto ticket = std::make_shared<uint64_t>();
  return submit_making(
      making, [making, ticket] { *ticket = making->parent().take_ticket(); },
      [making, ticket, mine] { return run_split(making, making->parent(), *ticket, mine); });
}

Status check_excluded(std::span<const int> excluded, const runtime::Communicator& parent) {
  for (const int rank : excluded) {
    EPCCL_TRY(check_rank("excludeRanksList's", rank, parent.ranks()));
    if (rank == parent.rank())
      return error(Code::invalid_argument, "excludeRanksList has rank {}, which is this one", rank);
  }
  return {};
}

/// What a shrink that aborts calls when it has ended the parent's work.
using WorkEnded = std::function<void()>;

// Of one that does not abort: in turn, since members count their gatherings, all in the same order.
Result<Gathering> gather_in_turn(runtime::Communicator& parent, uint64_t ticket,
                                 const std::vector<int>& excluded) {
  Result<Gathering> gathering = Gathering{};
  if (parent.revoked()) {
    EPCCL_TRY(parent.pass(ticket, [&]() -> Status {
      gathering = parent.regroup().gather_shrunk(excluded, runtime::Absence::gone);
      return {};
    }));
  } else {
    Status healthy = parent.run(ticket, [&]() -> Status {
      EPCCL_TRY(parent.check());
      gathering = parent.regroup().gather_shrunk(excluded, runtime::Absence::or_failed);
      return {};
    });
    EPCCL_TRY(std::move(healthy).with_context(
        "this communicator has failed (EPCCL_SHRINK_ABORT shrinks it all the same)"));
  }
  return gathering;
}

/// A shrink under way.
struct Shrink {
  bool aborts = false;
  std::vector<int> excluded;
  WorkEnded ended;
  uint64_t ticket = 0;
  Result<Gathering> gathering = Gathering{};

  // One that aborts takes no turn: jobs begin in the order of their calls.
  void begin(runtime::Communicator& parent) {
    if (aborts)
      gathering = parent.regroup().gather_shrunk(excluded, runtime::Absence::gone);
    else
      ticket = parent.take_ticket();
  }

  Status run(Making& making) {
    runtime::Communicator& parent = making.parent();
    if (aborts) parent.end_work("in-flight work was ended by a shrink with EPCCL_SHRINK_ABORT");
    if (aborts && ended) ended();
    if (!aborts) gathering = gather_in_turn(parent, ticket, excluded);
    EPCCL_TRY(gathering.status());
    return making.join(*gathering);
  }
};

Status shrink(epcclComm_t comm, const int* list, int count, epcclComm_t* newcomm, const epcclConfig_t* config,
              int flags, const WorkEnded& ended) {
  if (newcomm == nullptr) return {Code::invalid_argument, "newcomm is NULL"};
  store(newcomm, nullptr);
  EPCCL_ASSIGN(const Parent parent, find_parent(comm));
  if (flags != EPCCL_SHRINK_DEFAULT && flags != EPCCL_SHRINK_ABORT)
    return error(Code::invalid_argument,
                 "shrinkFlags {} is neither EPCCL_SHRINK_DEFAULT nor EPCCL_SHRINK_ABORT", flags);
  if (list == nullptr) return {Code::invalid_argument, "excludeRanksList is NULL"};
  if (count < 1) return error(Code::invalid_argument, "excludeRanksCount {} is not positive", count);
  const std::span excluded(list, static_cast<size_t>(count));
  EPCCL_TRY(check_excluded(excluded, *parent.communicator));
  EPCCL_ASSIGN(const MakingPtr making, start_child(parent, newcomm, config));
  making->show();
  const auto its = std::make_shared<Shrink>();
  its->aborts = flags == EPCCL_SHRINK_ABORT;
  its->excluded.assign(excluded.begin(), excluded.end());
  its->ended = ended;
  return submit_making(
      making, [making, its] { its->begin(making->parent()); }, [making, its] { return its->run(*making); });
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommInitRank(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank) {
  return guarded([&] {
    return refuse(init_with_config(comm, {to_unique_id(commId), 0, rank, nranks}, nullptr));
  });
}

epcclResult_t epcclCommInitRankConfig(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank,
                                      epcclConfig_t* config) {
  return guarded([&] {
    return refuse(init_with_config(comm, {to_unique_id(commId), 0, rank, nranks}, config));
  });
}

epcclResult_t epcclCommInitRankScalable(epcclComm_t* newcomm, int nranks, int myrank, int nId,
                                        epcclUniqueId* commIds, epcclConfig_t* config) {
  return guarded([&] { return refuse(init_scalable(newcomm, nranks, myrank, nId, commIds, config)); });
}

epcclResult_t epcclCommInitAll(epcclComm_t* comms, int ndev, const int* devlist) {
  return guarded([&] { return refuse(init_all(comms, ndev, devlist)); });
}

epcclResult_t epcclCommSplit(epcclComm_t comm, int color, int key, epcclComm_t* newcomm,
                             epcclConfig_t* config) {
  return guarded([&] { return refuse(split(comm, color, key, newcomm, config)); });
}

epcclResult_t epcclCommShrink(epcclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                              epcclComm_t* newcomm, epcclConfig_t* config, int shrinkFlags) {
  return guarded([&] {
    return refuse(shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags, {}));
  });
}

epcclResult_t epcclCommShrinkBeside(epcclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                    epcclComm_t* newcomm, epcclConfig_t* config, int shrinkFlags,
                                    void (*beside)(epcclComm_t comm)) {
  return guarded([&] {
    WorkEnded ended;
    if (beside != nullptr) ended = [beside, comm] { beside(comm); };
    return refuse(shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags, ended));
  });
}
