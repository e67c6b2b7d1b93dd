#include "perf/src/links/job.hpp"

#include <algorithm>
#include <memory>

#include "base/clock.hpp"
#include "perf/src/buffers.hpp"
#include "perf/src/job.hpp"
#include "perf/src/links/report.hpp"

namespace epccl::perf::links {
namespace {

constexpr uint64_t word = 8;  // bytes that only say that something has come

/// One end of a link.
class Meter {
 public:
  Meter(const Options& options, Session& session, const Buffer& memory, const Stream& stream)
      : options_(options),
        session_(session),
        comm_(session.communicators().front().get()),
        memory_(memory),
        stream_(stream) {}

  /// This rank's part of a round: adds the link from it. Collective.
  Status run(const Round& round, std::vector<Link>& links) {
    const int rank = session_.rank();
    const auto mine = std::ranges::find_if(
        round, [&](const auto& pair) { return pair.first == rank || pair.second == rank; });
    const bool takes_part = mine != round.end(), first = takes_part && mine->first == rank;
    Link link{rank, takes_part ? (first ? mine->second : mine->first) : rank};
    // The latency, then the one direction, then the other: with a barrier before each, so that all pairs do the same.
    EPCCL_TRY(session_.coordinator().barrier());
    if (takes_part) {
      EPCCL_ASSIGN(const double there_and_back, exchange(link.to, first, word));
      link.latency = there_and_back / 2;
    }
    for (const bool of_the_first : {true, false}) {
      EPCCL_TRY(session_.coordinator().barrier());
      if (!takes_part) continue;
      EPCCL_ASSIGN(const double seconds, exchange(link.to, first == of_the_first, options_.bytes));
      if (first == of_the_first)
        link.rate = static_cast<double>(options_.bytes) / std::max(seconds - link.latency, 1e-9);
    }
    if (takes_part) links.push_back(link);
    return {};
  }

 private:
  /// `bytes` from the one who begins, and a word back; the median time of that. To the other it is the time from its answer to its next one.
  Result<double> exchange(int peer, bool begins, uint64_t bytes) {
    // The first makes the connection, and tells how many of them there is time for: those who wait for all pairs give up after a timeout.
    const double start = now_seconds();
    EPCCL_TRY(exchange_once(peer, begins, bytes));
    EPCCL_ASSIGN(const uint64_t times, agree_on_times(peer, begins, now_seconds() - start));
    for (uint64_t i = 0; i < std::min<uint64_t>(times, static_cast<uint64_t>(options_.warmup)); ++i)
      EPCCL_TRY(exchange_once(peer, begins, bytes));
    std::vector<double> seconds;
    for (uint64_t i = 0; i < times; ++i) {
      const double before = now_seconds();
      EPCCL_TRY(exchange_once(peer, begins, bytes));
      seconds.push_back(now_seconds() - before);
    }
    return summarize(std::move(seconds)).median;
  }

  Status exchange_once(int peer, bool begins, uint64_t bytes) {
    if (begins) {
      EPCCL_TRY(send(bytes, peer));
      return receive(word, peer);
    }
    EPCCL_TRY(receive(bytes, peer));
    return send(word, peer);
  }

  /// As many as were asked for, or as are over in two seconds; one at least. Who begins says so.
  Result<uint64_t> agree_on_times(int peer, bool begins, double seconds) {
    constexpr double most_seconds = 2;
    const double fit =
        std::clamp(most_seconds / std::max(seconds, 1e-9), 1.0, static_cast<double>(options_.iterations));
    auto times = static_cast<uint64_t>(fit);
    const epcclResult_t result = begins ? epcclSend(&times, sizeof times, epcclUint8, peer, comm_, nullptr)
                                        : epcclRecv(&times, sizeof times, epcclUint8, peer, comm_, nullptr);
    EPCCL_TRY(api_status(begins ? "epcclSend" : "epcclRecv", result, comm_));
    return times;
  }

  Status send(uint64_t bytes, int peer) {
    EPCCL_TRY(api_status("epcclSend",
                         epcclSend(memory_.there(), bytes, epcclUint8, peer, comm_, stream_.get()), comm_));
    return stream_.wait(comm_);
  }
  Status receive(uint64_t bytes, int peer) {
    std::byte* const there = memory_.there() + memory_.bytes().size() / 2;
    EPCCL_TRY(
        api_status("epcclRecv", epcclRecv(there, bytes, epcclUint8, peer, comm_, stream_.get()), comm_));
    return stream_.wait(comm_);
  }

  const Options& options_;
  Session& session_;
  const epcclComm_t comm_;
  const Buffer& memory_;
  const Stream& stream_;
};

/// Of every rank what it has measured: as many links a rank as there are rounds, some of none.
Result<std::vector<Link>> gather(Coordinator& coordinator, std::vector<Link> mine, size_t rounds) {
  mine.resize(rounds, Link{-1, -1});
  EPCCL_ASSIGN(std::vector<Link> all, coordinator.gather(std::span<const Link>(mine)));
  std::erase_if(all, [](const Link& link) { return link.from < 0; });
  return all;
}

struct LinksJob : JobState<Options, RunInfo, Row> {
  Result<std::string> read(int argc, char** argv) {
    EPCCL_ASSIGN(CommandLine line, parse_command_line(argc, argv));
    options = std::move(line.options);
    return line.help;
  }
  static Status check_typed(int argc, char** argv) { return parse_command_line(argc, argv).status(); }
  Status check_ranks() const {
    if (environment.ranks > 1) return {};
    return {Code::invalid_argument,
            "links: one rank has none; start several (epccl-run -n 4 epccl-perf links)"};
  }
  static Result<bool> load() { return false; }
  std::vector<std::string> algorithms() const { return {"auto"}; }
  std::string identity() const { return describe(options); }

  Status measure(Session& session, Output& output) {
    EPCCL_ASSIGN(const std::unique_ptr<Gpu> gpu, Gpu::of_rank(options, session.ranks(), session.rank()));
    const uint64_t room = std::max(options.bytes, word);
    EPCCL_ASSIGN(const Buffer memory, Buffer::allocate(2 * room, options.registered, gpu.get()));
    std::vector<Registration> registrations;
    if (options.registered) {
      EPCCL_ASSIGN(Registration registration, Registration::make(session.communicators().front(), memory));
      registrations.push_back(std::move(registration));
    }
    const Stream stream(gpu.get());
    Meter meter(options, session, memory, stream);
    Status status = measure_groups(session, meter, output);
    if (!status.ok()) session.abort();  // before the memory goes that unfinished work may still use
    return status;
  }

 private:
  Status measure_groups(Session& session, Meter& meter, Output& output) {
    const std::vector<int> node_of = session.node_of();
    const std::vector<Group> groups = groups_of(options.pairs, node_of);
    if (groups.empty())
      return error(Code::invalid_argument, "--pairs {}: {} ranks on {} nodes have none",
                   to_string(options.pairs), node_of.size(), session.nodes());
    for (const Group& group : groups) {
      std::vector<Link> mine;
      for (const Round& round : group.rounds) EPCCL_TRY(meter.run(round, mine));
      Row row{group.kind, group.rounds.size(), node_of, {}, {}};
      EPCCL_ASSIGN(row.links, gather(session.coordinator(), std::move(mine), group.rounds.size()));
      row.diagnosis = diagnose(row.links, node_of, options.threshold);
      const std::string text = table_row(row);
      add_row(*this, output, std::move(row), text);
    }
    return {};
  }
};

}  // namespace

int run(int argc, char** argv) {
  LinksJob job;
  return run_job(job, argc, argv);
}

}  // namespace epccl::perf::links
