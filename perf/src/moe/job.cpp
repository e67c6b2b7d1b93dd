#include "perf/src/moe/job.hpp"

#include <algorithm>
#include <functional>
#include <memory>

#include "base/settings.hpp"
#include "perf/src/job.hpp"
#include "perf/src/moe/count_file.hpp"
#include "perf/src/moe/measure.hpp"
#include "perf/src/moe/placed_routing.hpp"
#include "perf/src/moe/report.hpp"
#include "perf/src/overlap/bare_sockets.hpp"
#include "perf/src/overlap/overlap_meter.hpp"
#include "perf/src/wire.hpp"

namespace epccl::perf::moe {
namespace {

uint32_t most_tokens(const Options& options) {
  return *std::max_element(options.tokens.begin(), options.tokens.end());
}

/// For whom memory is wanted.
std::string text_of_tables(const Options& options, int ranks, uint32_t tokens) {
  const uint64_t entries = uint64_t{tokens} * options.shape.topk * static_cast<uint64_t>(ranks);
  return fmt::format("{} bytes of routing ({} tokens on each of {} ranks), and for the rows that come of it",
                     entries * sizeof(TopkTable{}.experts[0]), tokens, ranks);
}

/// A group and its handle for each strategy, in the options' order.
class Strategies {
 public:
  static Result<Strategies> create(const Options& options, int ranks, Communicator& communicator,
                                   const Stream& stream) {
    Strategies made;
    for (const epcclEpStrategy_t strategy : options.strategies) {
      epcclEpGroupConfig_t config = EPCCL_EP_GROUP_CONFIG_INIT;
      config.num_experts = options.group_experts(ranks);
      config.max_send_tokens_per_rank = most_tokens(options);
      config.max_token_bytes = std::max(options.dispatched_token_bytes(), options.combined_token_bytes());
      config.strategy = strategy;
      EPCCL_ASSIGN(EpGroup group, EpGroup::create(communicator, config));
      made.groups_.push_back(std::make_unique<EpGroup>(std::move(group)));
      EPCCL_ASSIGN(EpHandle handle,
                   EpHandle::create(*made.groups_.back(), options.layout, how(options, ranks), stream));
      made.handles_.push_back(std::move(handle));
    }
    return made;
  }

  EpHandle& handle(size_t index) { return handles_[index]; }

 private:
  static epcclEpHandleConfig_t how(const Options& options, int ranks) {
    epcclEpHandleConfig_t config = EPCCL_EP_HANDLE_CONFIG_INIT;
    config.static_topk = options.fixed ? options.shape.topk : 0;
    config.max_tokens_per_expert = options.capacity(most_tokens(options), ranks);
    config.undefined_padding = options.undefined_padding ? 1 : 0;
    return config;
  }

  std::vector<std::unique_ptr<EpGroup>> groups_;  // handles keep their addresses
  std::vector<EpHandle> handles_;                 // destroyed before their groups
};

/// Bytes of all ranks, by what the library counts ...
LinkBytes measured_bytes(const Options& options, const epcclEpStats_t& stats) {
  return {stats.dispatch_bytes_local, stats.dispatch_bytes_node,
          (options.dispatches() ? stats.dispatch_bytes_network : 0) +
              (options.combines() ? stats.combine_bytes_network : 0)};
}

/// Bytes of a row, over the directions that the operation takes.
uint64_t bytes_both_ways(const Options& options) {
  return (options.dispatches() ? options.dispatch_row_bytes() : 0) +
         (options.combines() ? options.combine_row_bytes() : 0);
}

/// ... and by the routing.
LinkBytes expected_bytes(const Options& options, const Case& of, const Placement& placement,
                         epcclEpStrategy_t used) {
  const LinkRows rows = link_rows(of.tables, placement, used, options.layout);
  return {rows.local * options.dispatch_row_bytes(), rows.node * options.dispatch_row_bytes(),
          rows.network * bytes_both_ways(options)};
}

/// The share of the time that the busiest link needs at least. A combine takes the ways of its dispatch back:
/// what one sends, the other receives, and the busiest link is as busy.
std::optional<double> wire_fraction(const Options& options, const Case& of, const Placement& placement,
                                    const Row& row) {
  const uint64_t rows =
      busiest_link_bytes(network_rows(of.tables, placement, row.used), 1, placement.node_of());
  if (!options.link_rate || rows == 0 || row.seconds.median <= 0) return std::nullopt;
  return ideal_seconds(rows * bytes_both_ways(options), *options.link_rate) / row.seconds.median;
}

Row row_of(const Options& options, const Case& of, const Placement& placement, epcclEpStrategy_t asked,
           const Measurement& measured) {
  Row row;
  row.asked = asked;
  row.used = measured.stats.strategy;
  row.tokens = of.tokens;
  for (const TopkTable& table : of.tables) row.total_tokens += table.tokens;
  const uint64_t copy_bytes = (options.dispatches() ? options.dispatched_token_bytes() : 0) +
                              (options.combines() ? options.combined_token_bytes() : 0);
  row.bytes_per_rank = total_entries(of.tables) * copy_bytes / static_cast<uint64_t>(placement.ranks());
  row.seconds = measured.seconds;
  row.dispatch = measured.dispatch;
  row.combine = measured.combine;
  row.update = measured.update;
  row.fresh = measured.fresh;
  row.in_a_row = measured.in_a_row;
  row.iterations = measured.iterations;
  row.bytes = measured_bytes(options, measured.stats);
  row.expected = expected_bytes(options, of, placement, row.used);
  row.imbalance = imbalance(of.copies);
  row.wire_fraction = wire_fraction(options, of, placement, row);
  row.wrong = measured.wrong;
  row.split = measured.split;
  return row;
}

/// What an overlap computes beneath.
class OverlappedExchange : public Overlapped {
 public:
  OverlappedExchange(const Options& options, EpHandle& handle, const Exchange& exchange)
      : options_(options), handle_(handle), exchange_(exchange) {}

  Status call() override { return issue(Until::complete); }
  Status start() override { return issue(Until::started); }
  Status finish() override { return handle_.complete(); }
  bool queues() const override { return handle_.gpu() != nullptr; }

 private:
  Status issue(Until until) {
    if (options_.dispatches()) EPCCL_TRY(exchange_.dispatch(handle_, until));
    if (options_.combines()) EPCCL_TRY(exchange_.combine(handle_, until));
    return {};
  }

  const Options& options_;
  EpHandle& handle_;
  const Exchange& exchange_;
};

/// The measurements of a run that has joined.
class Measuring {
 public:
  /// Given the row of every case and strategy.
  using AddRow = std::function<void(Row)>;

  Measuring(const Options& options, Session& session)
      : options_(options),
        session_(session),
        placement_(session.node_of(), options.group_experts(static_cast<int>(session.node_of().size()))) {}

  /// Collective.
  Status run(const Routing& routing, const AddRow& add) {
    EPCCL_TRY(make_cases(routing));
    EPCCL_ASSIGN(const std::unique_ptr<Gpu> gpu, Gpu::of_rank(options_, session_.ranks(), session_.rank()));
    EPCCL_ASSIGN(Memory memory, Memory::allocate(options_, cases_, session_.rank(), gpu.get()));
    if (options_.registered) EPCCL_TRY(memory.register_with(communicator()));
    Stream stream(gpu.get());
    if (options_.stream) {
      EPCCL_ASSIGN(stream, Stream::create());
    }
    Status status = with_memory_for("the measurements", [&] { return measure(memory, stream, add); });
    if (!status.ok()) session_.abort();  // before the memory goes that unfinished work may still use
    return status;
  }

 private:
  Communicator& communicator() { return session_.communicators().front(); }

  Status make_cases(const Routing& routing) {
    for (const uint32_t tokens : options_.tokens) {
      EPCCL_TRY(with_memory_for(text_of_tables(options_, placement_.ranks(), tokens), [&]() -> Status {
        cases_.push_back(
            Case::make(options_, routing, placement_, session_.rank(), tokens, most_tokens(options_)));
        return {};
      }));
    }
    return {};
  }

  Status measure(Memory& memory, const Stream& stream, const AddRow& add) {
    EPCCL_TRY(communicator().use_engine(options_.engines.front()));
    EPCCL_ASSIGN(Strategies strategies,
                 Strategies::create(options_, placement_.ranks(), communicator(), stream));
    Meter meter(session_.coordinator(), options_);
    for (const Case& each : cases_) {
      Exchange exchange(options_, placement_, each, memory, session_.rank());
      for (size_t i = 0; i < options_.strategies.size(); ++i) {
        const epcclEpStrategy_t strategy = options_.strategies[i];
        const std::string title =
            fmt::format("{} {} {} tokens", to_string(options_.operation), to_string(strategy), each.tokens);
        EPCCL_ASSIGN(const Measurement measured, meter.run(strategies.handle(i), exchange, title));
        Row row = row_of(options_, each, placement_, strategy, measured);
        if (options_.overlap) EPCCL_TRY(measure_overlap(strategies.handle(i), exchange, title, row));
        add(std::move(row));
      }
    }
    return {};
  }

  Status measure_overlap(EpHandle& handle, Exchange& exchange, const std::string& title, Row& row) {
    constexpr uint64_t number = 1'000'000;  // no other measurement's
    EPCCL_ASSIGN(const std::unique_ptr<MatrixProducts> products,
                 MatrixProducts::make(options_.device, options_.overlap->gemm_size));
    OverlapMeter meter(session_.coordinator(), options_, *products);
    OverlappedExchange calls(options_, handle, exchange);
    std::vector<Overlapped*> subjects = {&calls};
    std::unique_ptr<BareSockets> sockets;
    if (options_.beside_sockets) {
      EPCCL_ASSIGN(sockets, sockets_for(row));
      subjects.push_back(sockets.get());
    }
    EPCCL_ASSIGN(const std::vector<Overlap> overlaps, meter.run(subjects, row.seconds.median));
    row.overlap = overlaps.front();
    if (sockets) row.sockets = overlaps.back();
    if (!options_.check) return {};
    EPCCL_TRY(exchange.prepare(number));
    EPCCL_TRY(meter.run_once(calls));
    EPCCL_ASSIGN(const uint64_t wrong, exchange.check(number, title + ", overlapped"));
    EPCCL_ASSIGN(const std::optional<uint64_t> total, total_of(session_.coordinator(), options_, wrong));
    if (row.wrong) *row.wrong += total.value_or(0);
    return {};
  }

  /// As many bytes between the two ranks as the calls of the row, evenly to either.
  Result<std::unique_ptr<BareSockets>> sockets_for(const Row& row) {
    const size_t calls = (options_.dispatches() ? 1U : 0U) + (options_.combines() ? 1U : 0U);
    const size_t bytes = row.bytes.network / (2 * calls);
    if (bytes == 0) return error(Code::invalid_argument, "--overlap-sockets: no bytes go between nodes");
    return BareSockets::connect(session_.coordinator(), std::vector<size_t>(calls, bytes));
  }

  const Options& options_;
  Session& session_;
  const Placement placement_;
  std::vector<Case> cases_;
};

/// Of slots, where the options have some. Null: as it is.
Result<std::unique_ptr<Routing>> placed_or_none(const Options& options, const Routing& routing,
                                                const std::vector<int>& node_of) {
  if (options.slots == 0) return std::unique_ptr<Routing>{};
  return place_routing(options, routing, node_of);
}

/// The counts alone: there is one node, and no rank of it but this process.
Status write_matrix(const Options& options, const Routing& routing) {
  const MatrixRequest& request = *options.matrix;
  const std::vector<int> node_of(static_cast<size_t>(request.ranks));
  const uint32_t tokens = options.tokens.front();
  return with_memory_for(text_of_tables(options, request.ranks, tokens), [&]() -> Status {
    EPCCL_ASSIGN(const auto placed, placed_or_none(options, routing, node_of));
    const Placement placement(node_of, options.group_experts(request.ranks));
    const auto tables = all_tables(placed ? *placed : routing, request.ranks, tokens);
    return write_counts(token_copies(tables, placement, request.copies), request.file);
  });
}

struct MoeJob : JobState<Options, RunInfo, Row> {
  Result<std::string> read(int argc, char** argv) {
    EPCCL_ASSIGN(CommandLine line, parse_command_line(argc, argv, settings::get("EPCCL_LINK_RATE")));
    options = std::move(line.options);
    return line.help;
  }

  static Status check_typed(int argc, char** argv) { return parse_command_line(argc, argv, "").status(); }
  static Status check_ranks() { return {}; }

  Result<bool> load() {
    if (options.overlap) {
      EPCCL_TRY(MatrixProducts::available(options.device));
      info.blas = MatrixProducts::library(options.device);
    }
    if (options.shape.routing.kind == RoutingRule::Kind::trace)
      EPCCL_TRY(load_trace());
    else
      routing = make_routing(options.shape.routing, options.shape.experts, options.shape.topk, options.seed);
    if (!options.matrix) return false;
    if (environment.rank == 0) EPCCL_TRY(write_matrix(options, *routing));
    return true;
  }

  std::vector<std::string> algorithms() const { return {"auto"}; }
  std::string identity() const { return describe(options) + fmt::format(" trace {}", trace_hash); }
  Status measure(Session& session, Output& output) {
    EPCCL_ASSIGN(const auto placed, placed_or_none(options, *routing, session.node_of()));
    return Measuring(options, session).run(placed ? *placed : *routing, [&](Row row) {
      const std::string text = table_row(options, row);
      add_row(*this, output, std::move(row), text);
    });
  }

  std::unique_ptr<Routing> routing;
  uint64_t trace_hash = 0;

 private:
  /// Reads the trace, and takes from it what the command line leaves open.
  Status load_trace() {
    const int ranks = options.matrix ? options.matrix->ranks : environment.ranks;
    EPCCL_ASSIGN(RoutingTrace trace,
                 RoutingTrace::load(options.shape.routing.path, options.trace, ranks, options.shape.experts));
    if (options.shape.topk != 0 && options.shape.topk != trace.topk())
      return error(Code::invalid_argument, "--topk {}: the trace has {}", options.shape.topk, trace.topk());
    options.shape.topk = trace.topk();
    options.trace = {trace.step(), trace.layer()};
    if (options.tokens.empty()) options.tokens = {trace.most_tokens()};
    if (most_tokens(options) > trace.most_tokens())
      return error(Code::invalid_argument, "--tokens {}: no rank of the trace has more than {}",
                   most_tokens(options), trace.most_tokens());
    trace_hash = trace.hash();
    routing = std::make_unique<RoutingTrace>(std::move(trace));
    return {};
  }
};

}  // namespace

int run(int argc, char** argv) {
  MoeJob job;
  return run_job(job, argc, argv);
}

}  // namespace epccl::perf::moe
