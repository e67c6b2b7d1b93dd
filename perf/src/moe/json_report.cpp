#include "perf/src/moe/report.hpp"
#include "perf/src/overlap/overlap_json.hpp"

namespace epccl::perf::moe {
namespace {

using Json = nlohmann::ordered_json;

constexpr double us = 1e6;

Json config(const RunInfo& info) {
  const Options& o = info.options;
  Json json = {{"operation", to_string(o.operation)},
               {"shape", o.shape_name},
               {"hidden", o.shape.hidden},
               {"experts", o.shape.experts},
               {"topk", o.shape.topk},
               {"routing", to_string(o.shape.routing)},
               {"seed", o.seed},
               {"weights", o.weights},
               {"warmup_iters", o.warmup},
               {"iterations", o.budget ? Json(nullptr) : Json(o.iterations)},
               {"validation", o.check ? 1 : 0},
               {"ranks", info.ranks.size()},
               {"nodes", info.nodes},
               {"registered_memory", truth(o.registered)}};
  if (o.trace.step) json["trace_step"] = *o.trace.step;
  if (o.trace.layer) json["trace_layer"] = *o.trace.layer;
  if (o.budget) json["budget_s"] = *o.budget;
  if (o.graph_launches > 0) json["graph_launches"] = o.graph_launches;
  if (o.link_rate) json["link_rate_bits"] = *o.link_rate;
  if (o.overlap) {
    json["compute_ratio"] = o.overlap->compute_ratio;
    json["blas"] = info.blas;
  }
  json["devices"] = json_devices(info);
  return json;
}

void add_what(const Options& o, const Row& row, Json& json) {
  json["op"] = to_string(o.operation);
  json["algo"] = to_string(row.asked);
  json["strategy"] = to_string(row.used);
  json["tokens"] = row.tokens;
  json["total_tokens"] = row.total_tokens;
  json["hidden"] = o.shape.hidden;
  json["topk"] = o.shape.topk;
  json["experts"] = o.shape.experts;
  json["routing"] = to_string(o.shape.routing);
  if (o.slots > 0) json["slots"] = o.slots;
  json["type"] = type_name(o.type);
  json["fp8"] = o.fp8;
  json["weights"] = o.weights;
  json["layout"] = to_string(o.layout);
  json["static"] = o.fixed;
  json["undefined_padding"] = o.undefined_padding;
}

void add_times(const Options& o, const Row& row, Json& json) {
  json["us"] = row.seconds.median * us;
  json["p95_us"] = row.seconds.p95 * us;
  json["p99_us"] = row.seconds.p99 * us;
  json["min_us"] = row.seconds.minimum * us;
  json["dispatch_us"] = o.dispatches() ? Json(row.dispatch.median * us) : Json(nullptr);
  json["combine_us"] = o.combines() ? Json(row.combine.median * us) : Json(nullptr);
  json["layout_us"] = row.update.median * us;
  json["fresh_us"] = row.fresh.median * us;
  if (row.in_a_row) json["in_a_row_us"] = row.in_a_row->median * us;
  json["iterations"] = row.iterations;
}

Json result(const Options& options, const Row& row) {
  Json json;
  add_what(options, row, json);
  json["bytes_per_rank"] = row.bytes_per_rank;
  add_times(options, row, json);
  json["tokens_per_s"] = row.tokens_per_second();
  json["algbw"] = row.algbw();
  json["network_bytes"] = row.bytes.network;
  json["expected_network_bytes"] = row.expected.network;
  json["dispatch_node_bytes"] = row.bytes.node;
  json["expected_dispatch_node_bytes"] = row.expected.node;
  json["dispatch_local_bytes"] = row.bytes.local;
  json["expected_dispatch_local_bytes"] = row.expected.local;
  json["imbalance"] = row.imbalance;
  json["wire_fraction"] = row.wire_fraction ? Json(*row.wire_fraction) : Json(nullptr);
  json["wrong"] = row.wrong ? Json(*row.wrong) : Json(nullptr);
  if (row.split) json["split"] = split_json(*row.split);
  if (row.overlap) json["overlap"] = overlap_json(*row.overlap);
  if (row.sockets) json["overlap_sockets"] = overlap_json(*row.sockets);
  return json;
}

}  // namespace

Json json_report(const RunInfo& info, const std::vector<Row>& rows, const std::vector<std::string>& errors) {
  Json json = json_opening(info);
  json["config"] = config(info);
  Json results = Json::array();
  for (const Row& row : rows) results.push_back(result(info.options, row));
  json["results"] = std::move(results);
  json["out_of_bounds"] = json_out_of_bounds(total_wrong(rows));
  json["errors"] = errors;
  json["end_time"] = info.end_time;
  return json;
}

}  // namespace epccl::perf::moe
