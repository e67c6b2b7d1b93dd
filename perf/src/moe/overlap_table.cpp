#include <fmt/format.h>

#include "perf/src/moe/report.hpp"
#include "perf/src/overlap/overlap_text.hpp"

namespace epccl::perf::moe {
namespace {

/// One line of the table; titles and values alike.
template <typename... Columns>
std::string overlap_line(const char* begin, const Columns&... columns) {
  static_assert(sizeof...(columns) == 13);
  return begin +
         fmt::format(
             "{:>8}  {:>12}  {:>9}  {:>9}  {:>10}  {:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>6}\n",
             columns...);
}

std::string overlap_text(const Row& row, const std::string& name, const Overlap& o,
                         const std::string& wrong) {
  return overlap_line("  ", row.tokens, name, time_text(o.communication.median), time_text(o.compute.median),
                      time_text(o.overlapped.median), time_text(o.serial()), time_text(o.exposed()),
                      percent_text(o.exposed_fraction()), percent_text(o.dilation()),
                      percent_text(o.background_fraction()), percent_text(o.fraction_of_ideal()), o.products,
                      wrong);
}

}  // namespace

std::string overlap_titles() {
  return "#\n" +
         overlap_line("# ", "tokens", "strategy", "comm", "compute", "overlapped", "serial", "exposed",
                      "exposed", "dilation", "cpu", "ideal", "products", "#wrong") +
         overlap_line("# ", "(a rank)", "", "(us)", "(us)", "(us)", "(us)", "(us)", "(% comm)", "(%)",
                      "(% comm)", "(%)", "", "");
}

std::string overlap_row(const Row& row) {
  const std::string wrong = row.wrong ? fmt::format("{:g}", static_cast<double>(*row.wrong)) : "N/A";
  std::string text = overlap_text(row, strategy_text(row), *row.overlap, wrong);
  if (row.sockets) text += overlap_text(row, "sockets", *row.sockets, "N/A");
  return text;
}

}  // namespace epccl::perf::moe
