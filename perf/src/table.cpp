#include <fmt/format.h>

#include "perf/src/report.hpp"
#include "perf/src/wire.hpp"

namespace epccl::perf {
namespace {

constexpr double us_per_second = 1e6;

std::string column_titles() {
  constexpr const char* half = "  {:>7}  {:>6}  {:>6}  {:>6}";
  constexpr const char* ours = "  {:>9}  {:>7}  {:>7}  {:>6}\n";
  const auto left = [](auto... titles) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", titles...);
  };
  const auto both = [](auto... titles) {
    const std::string columns = fmt::format(fmt::runtime(half), titles...);
    return columns + columns;
  };
  return "#\n" + left("", "", "", "", "") + fmt::format("  {:^31}  {:^31}", "out-of-place", "in-place") +
         "\n" + left("size", "count", "type", "redop", "root") + both("time", "algbw", "busbw", "#wrong") +
         fmt::format(fmt::runtime(ours), "algo", "p50", "p99", "%wire") +
         left("(B)", "(elements)", "", "", "") + both("(us)", "(GB/s)", "(GB/s)", "") +
         fmt::format(fmt::runtime(ours), "", "(us)", "(us)", "(%)");
}

std::string pattern_text(const Pattern& pattern) {
  switch (pattern.kind) {
    case Pattern::Kind::uniform:
      return "uniform";
    case Pattern::Kind::zipf:
      return fmt::format("zipf:{}", pattern.exponent);
    case Pattern::Kind::file:
      return "file:" + pattern.path;
  }
  return "";
}

/// A line for each datatype that the sweep's first size has no element of.
std::string sizes_of_nothing(const RunInfo& info) {
  const Options& o = info.options;
  const auto ranks = static_cast<int>(info.ranks.size());
  std::string text;
  if (o.sweep.first == 0 || (o.pattern.kind == Pattern::Kind::file && !o.sizes_given)) return text;
  for (const DataType& type : o.datatypes) {
    const uint64_t one = o.size_of_one(type, ranks);
    if (o.sweep.first < one)
      text +=
          fmt::format("# Sizes below {} bytes are measured as 0 bytes of {}: a call of one element has {}\n",
                      one, type.name, one);
  }
  return text;
}

/// A line of what nccl-tests has no words for.
std::string own_settings(const RunInfo& info) {
  const Options& o = info.options;
  std::string text = fmt::format("# nRanks {} nNodes {} memory: {} stream: {}", info.ranks.size(), info.nodes,
                                 o.registered ? "registered" : "plain", o.stream ? "created" : "NULL");
  if (o.in_a_row > 1) text += fmt::format(" calls in a row: {}", o.in_a_row);
  if (o.per_pair) text += " sizes: per rank pair";
  if (o.operation == Operation::alltoallv) text += " pattern: " + pattern_text(o.pattern);
  if (o.budget) text += fmt::format(" budget: {} s", *o.budget);
  if (o.link_rate) text += fmt::format(" link rate: {} Gbit/s", *o.link_rate / 1e9);
  if (o.overlap)
    text += fmt::format("\n# overlap: compute {} times as long as the calls, matrix products by {}",
                        o.overlap->compute_ratio, info.blas);
  return text + "\n";
}

/// The columns of one placement.
std::string half_row(const Row& row, const std::optional<Measurement>& measured) {
  if (!measured) return fmt::format("  {0:>7}  {0:>6}  {0:>6}  {0:>6}", "N/A");
  const auto wrong = measured->wrong ? fmt::format("{:g}", static_cast<double>(*measured->wrong)) : "N/A";
  return fmt::format("  {}  {}  {}  {:>6}", fixed_width(measured->seconds.median * us_per_second, 7),
                     fixed_width(row.algbw(*measured), 6), fixed_width(row.busbw(*measured), 6), wrong);
}

}  // namespace

uint64_t Row::wrong() const {
  uint64_t elements = 0;
  for (const auto& measured : {out_of_place, in_place})
    if (measured) elements += measured->wrong.value_or(0);
  return elements;
}

std::optional<double> Row::wire_fraction() const {
  const double seconds = main().seconds.median;
  if (!link_rate || link_bytes == 0 || seconds <= 0) return std::nullopt;
  return ideal_seconds(link_bytes, *link_rate) / seconds;
}

uint64_t total_wrong(const std::vector<Row>& rows) {
  uint64_t wrong = 0;
  for (const Row& row : rows) wrong += row.wrong();
  return wrong;
}

double average_busbw(const std::vector<Row>& rows) {
  double sum = 0;
  size_t measurements = 0;
  for (const Row& row : rows) {
    for (const auto& measured : {row.out_of_place, row.in_place}) {
      if (!measured) continue;
      sum += row.busbw(*measured);
      ++measurements;
    }
  }
  return measurements == 0 ? 0 : sum / static_cast<double>(measurements);
}

std::string table_header(const RunInfo& info) {
  const Options& o = info.options;
  const Sweep& sweep = o.sweep;
  const std::string settings = fmt::format(
      "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} "
      "validation: {} graph: {}\n",
      sweep.first, sweep.last, sweep.factor > 1 ? sweep.factor : sweep.step,
      sweep.factor > 1 ? "factor" : "bytes", o.warmup, iterations_text(o), o.group_calls, o.check ? 1 : 0,
      o.graph_launches);
  return opening_lines(info, to_string(o.operation)) + settings + own_settings(info) +
         sizes_of_nothing(info) + device_lines(info) + (o.overlap ? overlap_titles() : column_titles());
}

std::string table_row(const Row& row) {
  if (row.overlap) return overlap_row(row);
  const auto timing = fixed_width(row.main().seconds.median * us_per_second, 7);
  const auto wire_fraction = row.wire_fraction();
  const std::string wire = wire_fraction ? fixed_width(100 * *wire_fraction, 6) : "N/A";
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", row.size, row.count, row.type.name,
                     row.redop ? to_string(*row.redop) : "none", row.root) +
         half_row(row, row.out_of_place) + half_row(row, row.in_place) +
         fmt::format("  {:>9}  {}  {}  {:>6}\n",
                     row.engine.empty() ? row.algorithm : row.algorithm + "/" + row.engine, timing,
                     fixed_width(row.main().seconds.p99 * us_per_second, 7), wire) +
         (row.main().split ? split_line(*row.main().split) : "");
}

std::string table_footer(const RunInfo& info, const std::vector<Row>& rows) {
  return wrong_line(total_wrong(rows)) +
         fmt::format("# {:<20} : {:g}\n", "Avg bus bandwidth", average_busbw(rows)) +
         closing_lines(to_string(info.options.operation));
}

}  // namespace epccl::perf
