#include "perf/src/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/settings.hpp"
#include "topology/host_id.hpp"

namespace epccl::perf {
namespace {

/// Keeps step by the library's own calls, on a communicator that is never measured.
class CommunicatorCoordinator final : public Coordinator {
 public:
  CommunicatorCoordinator(epcclComm_t comm, int rank, int ranks)
      : comm_(comm), rank_(rank), ranks_(ranks), sent_(static_cast<size_t>(ranks)), received_(sent_.size()) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  /// An element from every rank: none can return before all have called.
  Status barrier() override {
    return api_status("epcclAlltoall (barrier)",
                      epcclAlltoall(sent_.data(), received_.data(), 1, epcclUint32, comm_, nullptr), comm_);
  }

  Result<std::vector<std::byte>> gather_bytes(std::span<const std::byte> mine) override {
    std::vector<std::byte> copies;
    copies.reserve(mine.size() * static_cast<size_t>(ranks_));
    for (int r = 0; r < ranks_; ++r) copies.insert(copies.end(), mine.begin(), mine.end());
    std::vector<std::byte> all(copies.size());
    EPCCL_TRY(api_status("epcclAlltoall (gather)",
                         epcclAlltoall(copies.data(), all.data(), mine.size(), epcclUint8, comm_, nullptr),
                         comm_));
    return all;
  }

 private:
  epcclComm_t comm_;
  int rank_, ranks_;
  std::vector<uint32_t> sent_, received_;
};

/// What ranks tell each other first; plain bytes.
struct Introduction {
  uint64_t host_hash = 0;
  uint64_t fingerprint = 0;
  int32_t pid = 0;
  std::array<char, 108> host{};
};

double join_timeout(const SessionSettings& settings) {
  if (settings.timeout > 0) return settings.timeout;
  const auto seconds = settings::get_seconds("EPCCL_TIMEOUT");
  return seconds.ok() ? *seconds : 30;
}

/// The id of the first communicator. A process that no launcher started is alone.
Result<epcclUniqueId> first_id(const runtime::LaunchEnv& environment, double timeout) {
  epcclUniqueId id{};
  if (environment.ranks == 1) {
    EPCCL_TRY(api_status("epcclGetUniqueId", epcclGetUniqueId(&id)));
    return id;
  }
  EPCCL_ASSIGN(const runtime::UniqueId shared, runtime::share_unique_id(environment, timeout));
  static_assert(sizeof(id.internal) == sizeof(shared.bytes));
  std::memcpy(id.internal, shared.bytes.data(), shared.bytes.size());
  return id;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::join(const runtime::LaunchEnv& environment,
                                               const SessionSettings& settings, uint64_t fingerprint) {
  const double timeout = join_timeout(settings);
  EPCCL_ASSIGN(const epcclUniqueId id, first_id(environment, timeout));
  EPCCL_ASSIGN(Communicator control, Communicator::create(environment.ranks, id, environment.rank,
                                                          {"auto", settings.timeout, "perf-control"}));
  std::unique_ptr<Session> session(new Session);
  session->control_ = std::make_unique<Communicator>(std::move(control));
  session->coordinator_ = std::make_unique<CommunicatorCoordinator>(session->control_->get(),
                                                                    environment.rank, environment.ranks);
  EPCCL_TRY(session->introduce(fingerprint));
  if (settings.before_communicators)
    EPCCL_TRY(settings.before_communicators(session->ranks_, environment.rank));
  EPCCL_TRY(session->create_communicators(settings));
  return session;
}

Status Session::introduce(uint64_t fingerprint) {
  // The library's own: what is a node there is one here.
  EPCCL_ASSIGN(const topology::HostId here, topology::this_host_id());
  Introduction mine{here.hash, fingerprint, static_cast<int32_t>(getpid()), {}};
  std::copy_n(here.host.begin(), std::min(here.host.size(), mine.host.size() - 1), mine.host.begin());
  EPCCL_ASSIGN(const std::vector<Introduction> all,
               coordinator_->gather(std::span<const Introduction>(&mine, 1)));
  std::vector<uint64_t> hosts;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].fingerprint != all[0].fingerprint) {
      return error(
          Code::invalid_usage,
          "rank {} on {} (pid {}) was started with other arguments or settings (EPCCL_ALGO, ...), or reads "
          "another count matrix or routing trace, than rank 0",
          r, all[r].host.data(), all[r].pid);
    }
    const auto known = std::find(hosts.begin(), hosts.end(), all[r].host_hash);
    const auto node = static_cast<int>(known - hosts.begin());
    if (known == hosts.end()) hosts.push_back(all[r].host_hash);
    ranks_.push_back({static_cast<int>(r), all[r].pid, all[r].host.data(), node});
  }
  nodes_ = static_cast<int>(hosts.size());
  return {};
}

Status Session::create_communicators(const SessionSettings& settings) {
  for (const std::string& algorithm : settings.algorithms) {
    epcclUniqueId id{};
    Status made;
    if (rank() == 0) made = api_status("epcclGetUniqueId", epcclGetUniqueId(&id));
    EPCCL_TRY(std::move(made));
    EPCCL_ASSIGN(const std::vector<epcclUniqueId> ids,
                 coordinator_->gather(std::span<const epcclUniqueId>(&id, 1)));
    EPCCL_ASSIGN(Communicator communicator,
                 Communicator::create(coordinator_->ranks(), ids[0], rank(),
                                      {algorithm, settings.timeout, "perf-" + algorithm}));
    communicators_.push_back(std::move(communicator));
  }
  return {};
}

std::vector<int> Session::node_of() const {
  std::vector<int> nodes;
  for (const RankInfo& info : ranks_) nodes.push_back(info.node);
  return nodes;
}

Status Session::close() {
  for (Communicator& communicator : communicators_) EPCCL_TRY(communicator.close());
  return control_->close();
}

// Another rank's failure ends both kinds of communicators, but not everywhere at the same moment: who is told of this rank's abort
// first would take it for the reason.
void Session::wait_until_control_fails() const {
  constexpr auto longest = std::chrono::seconds(1);
  const auto has_failed = [](const Communicator& communicator) {
    epcclResult_t state = epcclSuccess;
    return communicator.get() != nullptr &&
           epcclCommGetAsyncError(communicator.get(), &state) == epcclSuccess && state == epcclRemoteError;
  };
  if (std::ranges::none_of(communicators_, has_failed)) return;
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!has_failed(*control_) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Session::abort() {
  wait_until_control_fails();
  for (Communicator& communicator : communicators_) communicator.abort();
  control_->abort();
}

}  // namespace epccl::perf
