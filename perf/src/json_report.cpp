#include "perf/src/overlap/overlap_json.hpp"
#include "perf/src/report.hpp"

namespace epccl::perf {
namespace {

using Json = nlohmann::ordered_json;

Json config(const RunInfo& info) {
  const Options& o = info.options;
  Json json = {
      {"nthreads", 1}, {"ngpus", 1}, {"minimum_bytes", o.sweep.first}, {"maximum_bytes", o.sweep.last}};
  if (o.sweep.factor > 1) {
    json["step_factor"] = o.sweep.factor;
  } else {
    json["step_bytes"] = o.sweep.step;
  }
  json["warmup_iters"] = o.warmup;
  json["iterations"] = o.budget ? Json(nullptr) : Json(o.iterations);  // those of a row stand there
  json["aggregated_iterations"] = o.group_calls;
  json["calls_in_a_row"] = o.in_a_row;
  json["validation"] = o.check ? 1 : 0;
  json["graph"] = o.graph_launches;
  json["blocking_collectives"] = truth(o.blocking);
  json["parallel_init"] = truth(false);
  json["operation"] = to_string(o.operation);
  json["ranks"] = info.ranks.size();
  json["nodes"] = info.nodes;
  json["registered_memory"] = truth(o.registered);
  if (o.budget) json["budget_s"] = *o.budget;
  if (o.link_rate) json["link_rate_bits"] = *o.link_rate;
  json["devices"] = json_devices(info);
  return json;
}

constexpr double us = 1e6;

Json wrong_of(const Measurement& measured) {
  return measured.wrong ? Json(*measured.wrong) : Json(nullptr);
}

Json placement(const Row& row, const std::optional<Measurement>& measured) {
  if (!measured) return nullptr;
  return {{"time", measured->seconds.median * us},
          {"alg_bw", row.algbw(*measured)},
          {"bus_bw", row.busbw(*measured)},
          {"nwrong", wrong_of(*measured)}};
}

Json result(const Row& row) {
  const Measurement& main = row.main();
  Json json = {{"size", row.size},
               {"count", row.count},
               {"type", row.type.name},
               {"redop", row.redop ? to_string(*row.redop) : "none"},
               {"root", std::to_string(row.root)}};
  json["out_of_place"] = placement(row, row.out_of_place);
  json["in_place"] = placement(row, row.in_place);
  json["actual_iterations"] = main.iterations;
  json["experiment_name"] = "";
  json["algo"] = row.algorithm;
  if (!row.engine.empty()) json["copy_engine"] = row.engine;
  if (row.overlap) json["overlap"] = overlap_json(*row.overlap);
  if (row.copies) json["overlap_copies"] = overlap_json(*row.copies);
  if (is_alltoall(row.operation)) json["bytes_per_pair"] = row.count * row.type.bytes;
  json["time_us"] = main.seconds.median * us;
  json["p99_us"] = main.seconds.p99 * us;
  json["min_us"] = main.seconds.minimum * us;
  json["iterations"] = main.iterations;
  json["wrong"] = main.wrong ? Json(row.wrong()) : Json(nullptr);
  if (main.split) json["split"] = split_json(*main.split);
  if (const auto fraction = row.wire_fraction()) json["wire_fraction"] = *fraction;
  return json;
}

}  // namespace

Json json_report(const RunInfo& info, const std::vector<Row>& rows, const std::vector<std::string>& errors) {
  Json json = json_opening(info);
  json["config"] = config(info);
  Json results = Json::array();
  for (const Row& row : rows) results.push_back(result(row));
  json["results"] = std::move(results);
  json["out_of_bounds"] = json_out_of_bounds(total_wrong(rows));
  json["average_bus_bandwidth"] = {{"bandwidth", average_busbw(rows)}, {"okay", "unchecked"}};
  json["errors"] = errors;
  json["end_time"] = info.end_time;
  return json;
}

}  // namespace epccl::perf
