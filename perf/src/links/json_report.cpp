#include "perf/src/links/report.hpp"

namespace epccl::perf::links {
namespace {

using Json = nlohmann::ordered_json;

const char* to_string(Finding::What what) {
  switch (what) {
    case Finding::What::node_sends:
      return "node_sends";
    case Finding::What::node_receives:
      return "node_receives";
    case Finding::What::rank_sends:
      return "rank_sends";
    case Finding::What::rank_receives:
      return "rank_receives";
    case Finding::What::link:
      return "link";
  }
  return "?";
}

Json config(const RunInfo& info) {
  const Options& o = info.options;
  return {{"operation", operation},
          {"pairs", links::to_string(o.pairs)},
          {"size", o.bytes},
          {"threshold", o.threshold},
          {"warmup_iters", o.warmup},
          {"iterations", o.iterations},
          {"ranks", info.ranks.size()},
          {"nodes", info.nodes},
          {"registered_memory", truth(o.registered)},
          {"devices", json_devices(info)}};
}

Json number_or_null(int number) {
  return number < 0 ? Json(nullptr) : Json(number);
}

Json result(const Row& row) {
  Json json = {{"kind", links::to_string(row.kind)},
               {"usual_rate", row.diagnosis.usual_rate / gigabyte},
               {"median_rate", row.diagnosis.median_rate / gigabyte},
               {"median_latency_us", row.diagnosis.median_latency * us}};
  json["slow"] = Json::array();
  for (const Finding& finding : row.diagnosis.slow)
    json["slow"].push_back({{"what", to_string(finding.what)},
                            {"from", number_or_null(finding.from)},
                            {"to", number_or_null(finding.to)},
                            {"rate", finding.rate / gigabyte}});
  json["links"] = Json::array();
  for (const Link& link : row.links)
    json["links"].push_back({{"from", link.from},
                             {"to", link.to},
                             {"latency_us", link.latency * us},
                             {"rate", link.rate / gigabyte}});
  return json;
}

}  // namespace

Json json_report(const RunInfo& info, const std::vector<Row>& rows, const std::vector<std::string>& errors) {
  Json json = json_opening(info);
  json["config"] = config(info);
  json["results"] = Json::array();
  for (const Row& row : rows) json["results"].push_back(result(row));
  json["errors"] = errors;
  json["end_time"] = info.end_time;
  return json;
}

}  // namespace epccl::perf::links
