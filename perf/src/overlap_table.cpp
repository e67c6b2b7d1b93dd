#include <fmt/format.h>

#include "perf/src/overlap/overlap_text.hpp"
#include "perf/src/report.hpp"

namespace epccl::perf {
namespace {

/// One line of the table; titles and values alike.
template <typename... Columns>
std::string overlap_line(const char* begin, const Columns&... columns) {
  static_assert(sizeof...(columns) == 13);
  return begin +
         fmt::format(
             "{:>12}  {:>8}  {:>7}  {:>9}  {:>9}  {:>10}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:>9}  {:>6}\n",
             columns...);
}

std::string line_of(const Row& row, const Overlap& o, const std::string& engine, const std::string& wrong) {
  return overlap_line("  ", row.size, row.type.name, engine, time_text(o.communication.median),
                      time_text(o.compute.median), time_text(o.overlapped.median), time_text(o.exposed()),
                      percent_text(o.exposed_fraction()), percent_text(o.dilation()),
                      percent_text(o.background_fraction()), percent_text(o.fraction_of_ideal()), o.products,
                      wrong);
}

}  // namespace

std::string overlap_titles() {
  return "#\n" +
         overlap_line("# ", "size", "type", "engine", "comm", "compute", "overlapped", "exposed", "exposed",
                      "dilation", "cpu", "ideal", "products", "#wrong") +
         overlap_line("# ", "(B)", "", "", "(us)", "(us)", "(us)", "(us)", "(% comm)", "(%)", "(% comm)",
                      "(%)", "", "");
}

std::string overlap_row(const Row& row) {
  std::string text =
      line_of(row, *row.overlap, row.engine.empty() ? "default" : row.engine,
              row.main().wrong ? fmt::format("{:g}", static_cast<double>(row.wrong())) : "N/A");
  if (row.copies) text += line_of(row, *row.copies, "copies", "N/A");
  return text;
}

}  // namespace epccl::perf
