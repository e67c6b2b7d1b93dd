#include "topology/rail_printer.hpp"

#include <algorithm>
#include <vector>

#include "topology/counted.hpp"

namespace epccl::topology {
namespace {

using nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string rail_rate(double gb_per_s) {
  if (gb_per_s <= 0) return "?";
  return gb_per_s < 1 ? fmt::format("{:.3g}", gb_per_s) : fmt::format("{:.1f}", gb_per_s);
}

std::string positions(const std::vector<int>& locals) {
  std::string text;
  for (const int local : locals) text += fmt::format("{}{}", text.empty() ? "" : " ", local);
  return text;
}

Row place_row(const Machine& machine, const RailPlace& place) {
  std::string nics;
  for (const int nic : place.nics)
    nics += (nics.empty() ? "" : "+") + machine.nics[static_cast<size_t>(nic)].name;
  const bool more_alone = place.alone_gb_per_s > place.gb_per_s * 1.01;
  return {fmt::format("{}", place.local),
          place.gpu < 0 ? "-" : fmt::format("GPU{}", machine.gpus[static_cast<size_t>(place.gpu)].index),
          nics.empty() ? "-" : nics,
          place.nics.empty() || place.gpu < 0 ? "-" : to_string(place.path),
          rail_rate(place.gb_per_s) +
              (more_alone ? fmt::format(" (alone {})", rail_rate(place.alone_gb_per_s)) : ""),
          place.why};
}

/// Columns as wide as their widest cell; the last is not padded.
std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows)
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const Row& row : rows) {
    text += " ";
    for (size_t column = 0; column + 1 < row.size(); ++column)
      text += fmt::format(" {:<{}} ", row[column], widths[column]);
    text += " " + row.back() + "\n";
  }
  return text;
}

}  // namespace

std::string format_rail_plan(const Machine& machine, const RailPlan& plan) {
  std::string text =
      fmt::format("Rail plan: {} x {}, {} of {} in use, {} GB/s a node\n", counted(plan.nodes, "node"),
                  counted(static_cast<int64_t>(plan.places.size()), "rank"), plan.rails.size(),
                  counted(static_cast<int64_t>(machine.nics.size()), "NIC"), rail_rate(plan.node_gb_per_s));
  std::vector<Row> rows{{"local", "GPU", "NICs", "path", "GB/s", "why"}};
  for (const RailPlace& place : plan.places) rows.push_back(place_row(machine, place));
  text += table(rows);
  if (!plan.rails.empty()) {
    rows = {{"NIC", "GB/s", "local ranks that meet on it, on every node"}};
    for (const Rail& rail : plan.rails)
      rows.push_back({machine.nics[static_cast<size_t>(rail.nic)].name, rail_rate(rail.gb_per_s),
                      positions(rail.locals)});
    text += "\n" + table(rows);
  }
  for (const UnusedNic& unused : plan.unused)
    text +=
        fmt::format("  not used: {}: {}\n", machine.nics[static_cast<size_t>(unused.nic)].name, unused.why);
  for (const std::string& note : plan.notes) text += fmt::format("  note: {}\n", note);
  return text;
}

ordered_json rail_plan_json(const RailPlan& plan) {
  ordered_json json{{"nodes", plan.nodes}, {"node_gb_per_s", plan.node_gb_per_s}};
  for (const char* list : {"places", "rails", "unused"}) json[list] = ordered_json::array();
  for (const RailPlace& place : plan.places)
    json["places"].push_back({{"local", place.local},
                              {"gpu", place.gpu},
                              {"nics", place.nics},
                              {"path", to_string(place.path)},
                              {"through_cpu", place.through_cpu},
                              {"gb_per_s", place.gb_per_s},
                              {"alone_gb_per_s", place.alone_gb_per_s},
                              {"better_relay", place.better_relay},
                              {"reason", to_string(place.reason)},
                              {"why", place.why}});
  for (const Rail& rail : plan.rails)
    json["rails"].push_back({{"nic", rail.nic}, {"locals", rail.locals}, {"gb_per_s", rail.gb_per_s}});
  for (const UnusedNic& unused : plan.unused)
    json["unused"].push_back({{"nic", unused.nic}, {"why", unused.why}});
  json["notes"] = plan.notes;
  return json;
}

}  // namespace epccl::topology
