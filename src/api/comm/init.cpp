// Communicators whose ranks meet by an id.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "api/comm/comm_options.hpp"
#include "api/comm/making.hpp"
#include "api/groups/group.hpp"
#include "api/handles/arguments.hpp"
#include "api/handles/last_error.hpp"
#include "base/caught.hpp"
#include "device/gpus.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::api {
namespace {

using runtime::Gathering;

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
