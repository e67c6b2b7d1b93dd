#include <fmt/format.h>

#include <algorithm>

#include "perf/src/moe/report.hpp"
#include "perf/src/overlap/overlap_text.hpp"

namespace epccl::perf::moe {
namespace {

/// One line of the table; titles and values alike.
template <typename... Columns>
std::string line(const char* begin, const Columns&... columns) {
  static_assert(sizeof...(columns) == 16);
  return begin + fmt::format(
                     "{:>8}  {:>11}  {:>12}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>7}  {:>12}  "
                     "{:>12}  {:>6}  {:>6}  {:>6}\n",
                     columns...);
}

std::string column_titles() {
  return "#\n" +
         line("# ", "tokens", "size", "strategy", "time", "p95", "p99", "dispatch", "combine", "layout",
              "tokens/s", "algbw", "network", "expected", "imbal", "%wire", "#wrong") +
         line("# ", "(a rank)", "(B/rank)", "", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)", "(1000)",
              "(GB/s)", "(B)", "(B)", "", "(%)", "");
}

std::string own_settings(const RunInfo& info) {
  const Options& o = info.options;
  const Shape& shape = o.shape;
  std::string text =
      fmt::format("# {}hidden {} experts {} topk {} routing: {} seed: {} type: {}{} layout: {}{}{}{}\n",
                  o.shape_name.empty() ? "" : "shape: " + o.shape_name + " ", shape.hidden, shape.experts,
                  shape.topk, to_string(shape.routing), o.seed, type_name(o.type),
                  o.fp8 ? ", dispatched as fp8" : "", to_string(o.layout), o.fixed ? " static" : "",
                  o.undefined_padding ? " undefined padding" : "", o.weights ? " weights" : "");
  if (o.slots > 0)
    text += fmt::format("# experts in {} slots of each rank, placed for this routing\n", o.slots);
  if (o.trace.step && o.trace.layer)
    text += fmt::format("# trace step {} layer {}\n", *o.trace.step, *o.trace.layer);
  text += fmt::format("# nRanks {} nNodes {} memory: {} stream: {} warmup iters: {} iters: {} validation: {}",
                      info.ranks.size(), info.nodes, o.registered ? "registered" : "plain",
                      o.stream ? "created" : "NULL", o.warmup, iterations_text(o), o.check ? 1 : 0);
  if (o.budget) text += fmt::format(" budget: {} s", *o.budget);
  if (o.link_rate) text += fmt::format(" link rate: {} Gbit/s", *o.link_rate / 1e9);
  if (o.overlap)
    text += fmt::format("\n# overlap: compute {} times as long as the calls, matrix products by {}",
                        o.overlap->compute_ratio, info.blas);
  return text + "\n";
}

}  // namespace

std::string strategy_text(const Row& row) {
  if (row.asked != EPCCL_EP_STRATEGY_AUTO) return to_string(row.asked);
  return fmt::format("auto({})", to_string(row.used));
}

uint64_t total_wrong(const std::vector<Row>& rows) {
  uint64_t wrong = 0;
  for (const Row& row : rows) wrong += row.wrong.value_or(0);
  return wrong;
}

std::string table_header(const RunInfo& info) {
  return opening_lines(info, to_string(info.options.operation)) + own_settings(info) + device_lines(info) +
         (info.options.overlap ? overlap_titles() : column_titles());
}

std::string table_row(const Options& options, const Row& row) {
  if (row.overlap) return overlap_row(row);
  const std::string missing = "N/A";
  return line("  ", row.tokens, row.bytes_per_rank, strategy_text(row), time_text(row.seconds.median),
              time_text(row.seconds.p95), time_text(row.seconds.p99),
              options.dispatches() ? time_text(row.dispatch.median) : missing,
              options.combines() ? time_text(row.combine.median) : missing, time_text(row.update.median),
              fixed_width(row.tokens_per_second() / 1000, 9), fixed_width(row.algbw(), 7), row.bytes.network,
              row.expected.network, fixed_width(row.imbalance, 6),
              row.wire_fraction ? fixed_width(100 * *row.wire_fraction, 6) : missing,
              row.wrong ? fmt::format("{:g}", static_cast<double>(*row.wrong)) : missing) +
         (row.split ? split_line(*row.split) : "");
}

std::string table_footer(const RunInfo& info, const std::vector<Row>& rows) {
  const auto differ = std::count_if(rows.begin(), rows.end(),
                                    [](const Row& row) { return row.bytes.network != row.expected.network; });
  return wrong_line(total_wrong(rows)) +
         fmt::format("# {:<20} : {}\n", "Network bytes",
                     differ == 0 ? "as expected" : fmt::format("not as expected in {} rows", differ)) +
         closing_lines(to_string(info.options.operation));
}

}  // namespace epccl::perf::moe
