#include "perf/src/collective_job.hpp"

#include <algorithm>
#include <memory>

#include "base/settings.hpp"
#include "perf/src/collective.hpp"
#include "perf/src/exchange.hpp"
#include "perf/src/job.hpp"
#include "perf/src/measure.hpp"
#include "perf/src/overlap/matrix_products.hpp"
#include "perf/src/wire.hpp"

namespace epccl::perf {
namespace {

using Calls = std::vector<std::unique_ptr<Call>>;

/// The calls of a run, a line of the table for each.
class CallList {
 public:
  CallList(const Options& options, const std::optional<CountMatrix>& matrix, const Session& session)
      : options_(options),
        matrix_(matrix),
        rank_(session.rank()),
        ranks_(static_cast<int>(session.ranks().size())),
        node_of_(session.node_of()) {}

  Calls make() {
    for (const DataType& type : options_.datatypes) {
      if (is_alltoall(options_.operation)) {
        add_exchanges(type);
      } else if (reduces(options_.operation)) {
        for (const RedOp op : options_.redops) add_collectives(type, op);
      } else {
        add_collectives(type, {});
      }
    }
    return std::move(calls_);
  }

 private:
  RowKey key_of(const DataType& type, uint64_t count) const {
    RowKey key;
    key.operation = options_.operation;
    key.type = type;
    key.ranks = ranks_;
    key.count = count;
    key.size = size_of_count(key.operation, count, ranks_) * type.bytes;
    return key;
  }

  std::vector<uint64_t> counts_of(const DataType& type) const {
    return sweep_counts(options_.sweep, options_.size_of_one(type, ranks_));
  }

  void add_collectives(const DataType& type, std::optional<RedOp> op) {
    std::vector<int> roots = {options_.root};
    if (has_root(options_.operation) && options_.root == Options::every_root) {
      roots.clear();
      for (int root = 0; root < ranks_; ++root) roots.push_back(root);
    }
    for (const int root : roots) {
      for (const uint64_t count : counts_of(type)) {
        RowKey key = key_of(type, count);
        key.redop = op;
        if (has_root(options_.operation)) key.root = root;
        key.link_bytes = least_link_elements(key.operation, root, key.count, node_of_) * type.bytes;
        calls_.push_back(std::make_unique<Collective>(key, rank_));
      }
    }
  }

  void add_exchange(const DataType& type, const CountMatrix& counts) {
    RowKey key = key_of(type, counts.largest_sent() / static_cast<uint64_t>(ranks_));
    key.size = counts.largest_sent() * type.bytes;
    key.link_bytes = busiest_link_bytes(counts, type.bytes, node_of_);
    calls_.push_back(std::make_unique<Exchange>(key, options_.grouped, counts, rank_));
  }

  void add_exchanges(const DataType& type) {
    if (matrix_ && !options_.sizes_given) return add_exchange(type, *matrix_);
    for (const uint64_t count : counts_of(type)) {
      if (matrix_) {
        add_exchange(type, scaled_counts(*matrix_, count * static_cast<uint64_t>(ranks_)));
      } else if (options_.pattern.kind == Pattern::Kind::zipf) {
        add_exchange(type, zipf_counts(ranks_, count, options_.pattern.exponent));
      } else {
        add_exchange(type, uniform_counts(ranks_, count));
      }
    }
  }

  const Options& options_;
  const std::optional<CountMatrix>& matrix_;
  const int rank_, ranks_;
  const std::vector<int> node_of_;
  Calls calls_;
};

/// Room for the largest call.
struct Memory {
  Buffer input, output;
  std::vector<Registration> registrations;
};

Result<Memory> allocate(const Options& options, const Calls& calls, Session& session, Gpu* gpu) {
  uint64_t read = 0, written = 0;
  for (const auto& call : calls) {
    read = std::max(read, call->input_bytes());
    written = std::max(written, call->output_bytes(false));
    if (options.in_place) written = std::max(written, call->output_bytes(true));
  }
  Memory memory;
  EPCCL_ASSIGN(memory.input, Buffer::allocate(read, options.registered, gpu));
  EPCCL_ASSIGN(memory.output, Buffer::allocate(written, options.registered, gpu));
  if (!options.registered) return memory;
  for (Communicator& communicator : session.communicators()) {
    for (const Buffer* buffer : {&memory.input, &memory.output}) {
      EPCCL_ASSIGN(Registration registration, Registration::make(communicator, *buffer));
      memory.registrations.push_back(std::move(registration));
    }
  }
  return memory;
}

struct CollectiveJob : JobState<Options, RunInfo, Row> {
  Result<std::string> read(int argc, char** argv) {
    EPCCL_ASSIGN(CommandLine line, parse_command_line(argc, argv, settings::get("EPCCL_LINK_RATE"),
                                                      settings::get("EPCCL_ALGO")));
    options = std::move(line.options);
    return line.help;
  }

  static Status check_typed(int argc, char** argv) {
    return parse_command_line(argc, argv, "", "auto").status();
  }

  Status check_ranks() const {
    if (options.root < environment.ranks) return {};
    return error(Code::invalid_argument, "--root {}: there are {} ranks", options.root, environment.ranks);
  }

  Result<bool> load() {
    if (options.pattern.kind == Pattern::Kind::file) {
      EPCCL_ASSIGN(matrix, load_counts(options.pattern.path, environment.ranks));
    }
    if (options.overlap) {
      EPCCL_TRY(MatrixProducts::available(options.device));
      info.blas = MatrixProducts::library(options.device);
      // Or nothing would go on in the background; a GPU's NULL stream does.
      options.stream = options.device == "host";
    }
    return false;
  }

  std::vector<std::string> algorithms() const { return options.algorithms; }

  std::string identity() const {
    std::string text = describe(options);
    for (int s = 0; matrix && s < matrix->ranks(); ++s) {
      for (int d = 0; d < matrix->ranks(); ++d) text += fmt::format(" {}", matrix->at(s, d));
    }
    return text;
  }

  Status measure(Session& session, Output& output) {
    const Calls calls = CallList(options, matrix, session).make();
    EPCCL_ASSIGN(const std::unique_ptr<Gpu> gpu, Gpu::of_rank(options, session.ranks(), session.rank()));
    EPCCL_ASSIGN(const Memory memory, allocate(options, calls, session, gpu.get()));
    Stream stream(gpu.get());
    if (options.stream) {
      EPCCL_ASSIGN(stream, Stream::create());
    }
    Meter meter(session.coordinator(), options, memory.input, memory.output, stream);
    Status status =
        with_memory_for("the measurements", [&] { return measure_calls(calls, session, meter, output); });
    if (!status.ok()) session.abort();  // before the memory goes that unfinished work may still use
    return status;
  }

  std::optional<CountMatrix> matrix;  // of the pattern's file

 private:
  /// Measures every call on every communicator and adds its row.
  Status measure_calls(const Calls& calls, Session& session, Meter& meter, Output& output) {
    for (const auto& call : calls) {
      for (Communicator& communicator : session.communicators()) {
        EPCCL_TRY(call->attach(communicator));
        for (const std::string& engine : options.engines) {
          EPCCL_TRY(communicator.use_engine(engine));
          EPCCL_ASSIGN(Row row, measure_call(*call, communicator, meter));
          row.engine = engine;
          const std::string text = table_row(row);
          add_row(*this, output, std::move(row), text);
        }
      }
    }
    return {};
  }

  Result<Row> measure_call(const Call& call, Communicator& communicator, Meter& meter) {
    Row row;
    static_cast<RowKey&>(row) = call.key();
    row.algorithm = options.grouped ? "group" : communicator.algorithm();
    row.link_rate = options.link_rate;
    if (options.out_of_place) {
      EPCCL_ASSIGN(row.out_of_place, meter.run(communicator, call, false));
    }
    if (options.in_place && has_in_place(options.operation) && !(options.overlap && options.out_of_place)) {
      EPCCL_ASSIGN(row.in_place, meter.run(communicator, call, true));
    }
    if (!options.overlap) return row;
    Measurement& main = row.out_of_place ? *row.out_of_place : *row.in_place;
    EPCCL_ASSIGN(const Meter::Overlaps overlaps, meter.run_overlap(communicator, call, !options.out_of_place,
                                                                   main.seconds.median, main.wrong));
    row.overlap = overlaps.call;
    row.copies = overlaps.copies;
    return row;
  }
};

}  // namespace

int run_collectives(int argc, char** argv) {
  CollectiveJob job;
  return run_job(job, argc, argv);
}

}  // namespace epccl::perf
