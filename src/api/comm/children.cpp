// Communicators of some ranks of another one: split and shrink.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "api/comm/comm_options.hpp"
#include "api/comm/making.hpp"
#include "api/groups/group.hpp"
#include "api/groups/ticket.hpp"
#include "api/handles/arguments.hpp"
#include "api/handles/last_error.hpp"
#include "device/gpus.hpp"

namespace epccl::api {
namespace {

using runtime::Gathering;

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

// In turn: members count their gatherings, all in the same order. The work is given ready: nothing may be thrown once the ticket is used.
Status run_in_turn(runtime::Communicator& parent, bool revoked, Ticket ticket,
                   const std::function<Status()>& work) {
  return revoked ? parent.pass(ticket.use(), work) : parent.run(ticket.use(), work);
}

Status run_split(const MakingPtr& making, runtime::Communicator& parent, Ticket ticket,
                 const runtime::SplitChoice& mine) {
  Result<std::optional<Gathering>> gathering = std::optional<Gathering>{};
  const bool revoked = parent.revoked();
  EPCCL_TRY(run_in_turn(parent, revoked, std::move(ticket), [&]() -> Status {
    EPCCL_ASSIGN(const auto choices, revoked
                                         ? parent.regroup().exchange_choices_anew(mine, making->interrupt())
                                         : parent.exchange_choices(mine));
    gathering = gather_split(parent, choices, revoked ? runtime::Absence::gone : runtime::Absence::or_failed);
    return {};
  }));
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
  const runtime::SplitChoice mine{color, key};
  const auto ticket = std::make_shared<Ticket>();
  const std::function<Status()> begin = [making, ticket] {
    *ticket = Ticket(making->parent_communicator());
    return Status{};
  };
  const std::function<Status()> run = [making, ticket, mine] {
    return run_split(making, making->parent(), std::move(*ticket), mine);
  };
  if (color != EPCCL_SPLIT_NOCOLOR) making->show();
  return submit_making(making, begin, run);
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

// Of one that does not abort.
Result<Gathering> gather_in_turn(runtime::Communicator& parent, Ticket ticket,
                                 const std::vector<int>& excluded) {
  Result<Gathering> gathering = Gathering{};
  const bool revoked = parent.revoked();
  Status done = run_in_turn(parent, revoked, std::move(ticket), [&]() -> Status {
    if (!revoked) EPCCL_TRY(parent.check());
    gathering = parent.regroup().gather_shrunk(
        excluded, revoked ? runtime::Absence::gone : runtime::Absence::or_failed);
    return {};
  });
  if (revoked) EPCCL_TRY(done);
  EPCCL_TRY(std::move(done).with_context(
      "this communicator has failed (EPCCL_SHRINK_ABORT shrinks it all the same)"));
  return gathering;
}

/// A shrink under way.
struct Shrink {
  bool aborts = false;
  std::vector<int> excluded;
  WorkEnded ended;
  Ticket ticket;
  Result<Gathering> gathering = Gathering{};

  // One that aborts takes no turn: jobs begin in the order of their calls.
  Status begin(const CommPtr& parent) {
    if (aborts)
      gathering = parent->regroup().gather_shrunk(excluded, runtime::Absence::gone);
    else
      ticket = Ticket(parent);
    return {};
  }

  Status run(Making& making) {
    runtime::Communicator& parent = making.parent();
    if (aborts) parent.end_work("in-flight work was ended by a shrink with EPCCL_SHRINK_ABORT");
    if (aborts && ended) ended();
    if (!aborts) gathering = gather_in_turn(parent, std::move(ticket), excluded);
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
  const auto its = std::make_shared<Shrink>();
  its->aborts = flags == EPCCL_SHRINK_ABORT;
  its->excluded.assign(excluded.begin(), excluded.end());
  its->ended = ended;
  const std::function<Status()> begin = [making, its] { return its->begin(making->parent_communicator()); };
  const std::function<Status()> run = [making, its] { return its->run(*making); };
  making->show();
  return submit_making(making, begin, run);
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

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
