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
  json["iterations"] = o.iterations;
  json["aggregated_iterations"] = 1;
  json["validation"] = o.check ? 1 : 0;
  json["graph"] = 0;
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

Json result(const Row& row) {
  const double us = 1e6;
  const Json wrong = row.wrong ? Json(*row.wrong) : Json(nullptr);
  Json json = {
      {"size", row.size}, {"count", row.count}, {"type", row.type.name}, {"redop", "none"}, {"root", "-1"}};
  json["out_of_place"] = {
      {"time", row.seconds.median * us}, {"alg_bw", row.algbw()}, {"bus_bw", row.busbw()}, {"nwrong", wrong}};
  json["in_place"] = nullptr;
  json["actual_iterations"] = row.iterations;
  json["experiment_name"] = "";
  json["algo"] = row.algorithm;
  json["bytes_per_pair"] = row.bytes_per_pair();
  json["time_us"] = row.seconds.median * us;
  json["p99_us"] = row.seconds.p99 * us;
  json["min_us"] = row.seconds.minimum * us;
  json["iterations"] = row.iterations;
  json["wrong"] = wrong;
  if (row.wire_fraction) json["wire_fraction"] = *row.wire_fraction;
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
