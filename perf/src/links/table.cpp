#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "perf/src/links/report.hpp"
#include "perf/src/statistics.hpp"

namespace epccl::perf::links {
namespace {

/// One line of the table; titles and values alike.
template <typename... Columns>
std::string line(const char* begin, const Columns&... columns) {
  static_assert(sizeof...(columns) == 9);
  return begin + fmt::format("{:>6}  {:>6}  {:>6}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n", columns...);
}

/// Of one rank's links.
struct Ends {
  std::vector<double> sent, received, latencies;
};

std::string line_of(int rank, int node, const Ends& ends) {
  const auto rate = [](double value) { return fixed_width(value / gigabyte, 8); };
  const auto time = [](double value) { return fixed_width(value * us, 8); };
  const Summary sent = summarize(ends.sent), received = summarize(ends.received),
                latency = summarize(ends.latencies);
  return line("  ", rank, node, ends.sent.size(), rate(sent.minimum), rate(sent.median),
              rate(received.minimum), rate(received.median), time(latency.median),
              time(std::ranges::max(ends.latencies)));
}

}  // namespace

std::string table_header(const RunInfo& info) {
  const Options& o = info.options;
  return opening_lines(info, operation) +
         fmt::format(
             "# nRanks {} nNodes {} memory: {} pairs: {} size: {} warmup iters: {} iters: {} slow: below {} "
             "of "
             "what is usual\n",
             info.ranks.size(), info.nodes, o.registered ? "registered" : "plain", to_string(o.pairs),
             o.bytes, o.warmup, o.iterations, o.threshold) +
         device_lines(info);
}

std::string table_row(const Row& row) {
  const auto rate = [](double value) { return fixed_width(value / gigabyte, 4); };
  std::string text =
      fmt::format("#\n# {}: {} links in {} rounds, usual {} GB/s, median {} GB/s, {} us\n",
                  to_string(row.kind), row.links.size(), row.rounds, rate(row.diagnosis.usual_rate),
                  rate(row.diagnosis.median_rate), fixed_width(row.diagnosis.median_latency * us, 5));
  text += line("# ", "rank", "node", "links", "sends", "", "receives", "", "latency", "");
  text += line("# ", "", "", "", "min", "median", "min", "median", "median", "max");
  text += line("# ", "", "", "", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "(us)", "(us)");
  std::map<int, Ends> ends;
  for (const Link& link : row.links) {
    ends[link.from].sent.push_back(link.rate);
    ends[link.from].latencies.push_back(link.latency);
    ends[link.to].received.push_back(link.rate);
  }
  for (const auto& [rank, its] : ends) text += line_of(rank, row.node_of[static_cast<size_t>(rank)], its);
  for (const Finding& finding : row.diagnosis.slow)
    text += "# slow: " + to_string(finding, row.diagnosis, row.node_of) + "\n";
  return text;
}

std::string table_footer(const RunInfo& /*info*/, const std::vector<Row>& rows) {
  size_t slow = 0;
  for (const Row& row : rows) slow += row.diagnosis.slow.size();
  return fmt::format("#\n# {:<20} : {}\n", "Slow", slow == 0 ? "none" : fmt::format("{}", slow)) +
         closing_lines(operation);
}

}  // namespace epccl::perf::links
