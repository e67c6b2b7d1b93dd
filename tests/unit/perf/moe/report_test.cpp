#include "perf/src/moe/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace epccl::perf::moe {
namespace {

RunInfo run_info() {
  RunInfo info;
  info.options.tokens = {64};
  info.options.type = {epcclBfloat16, "bfloat16", 2};
  info.options.strategies = {EPCCL_EP_STRATEGY_AUTO};
  info.ranks = {{0, 4711, "left", 0}, {1, 12, "right", 1}};
  info.nodes = 2;
  return info;
}

Row row() {
  Row r;
  r.used = EPCCL_EP_STRATEGY_DEDUP;
  r.tokens = 64;
  r.total_tokens = 128;
  r.bytes_per_rank = 4'000'000;
  r.seconds = {1e-3, 2.5e-3, 0.5e-3, 2e-3};
  r.dispatch = {4e-4, 0, 0, 0};
  r.combine = {6e-4, 0, 0, 0};
  r.update = {1e-4, 0, 0, 0};
  r.fresh = {1.5e-3, 0, 0, 0};
  r.iterations = 20;
  r.bytes = {1000, 2000, 3000};
  r.expected = {1000, 2000, 3000};
  r.imbalance = 1.25;
  r.wire_fraction = 0.5;
  r.wrong = 0;
  return r;
}

size_t columns_end(const std::string& text) {
  return text.find_last_not_of(" \n");
}

TEST(MoeRow, BandwidthIsSizeOverTime) {
  EXPECT_DOUBLE_EQ(row().algbw(), 4.0);
  EXPECT_DOUBLE_EQ(row().tokens_per_second(), 128'000);
  EXPECT_EQ(Row{}.algbw(), 0);
}

TEST(MoeTable, BelowARowIsWhatItsTimeWentTo) {
  Row r = row();
  r.split = Split{100e-6, 80e-6, 0, 15e-6, 20};
  const std::string text = table_row(run_info().options, r);
  EXPECT_EQ(text.substr(0, text.find('#')), table_row(run_info().options, row()));
  EXPECT_NE(text.find("#   split of 100.0 us: kernel 80.0 us (80.0 %)"), std::string::npos) << text;
  EXPECT_DOUBLE_EQ(json_report(run_info(), {r}, {}).at("results")[0].at("split").at("kernel_us"), 80);
}

TEST(MoeTable, RowsLineUpWithTheirTitles) {
  const std::string header = table_header(run_info());
  const std::string titles = header.substr(header.find("#   tokens"));
  EXPECT_EQ(table_row(run_info().options, row()),
            "        64      4000000   auto(dedup)    1000.00    2000.00    2500.00     400.00     600.00    "
            " 100.00     "
            "128.00     4.00          3000          3000    1.25   50.00       0\n");
  EXPECT_EQ(columns_end(titles.substr(0, titles.find('\n'))),
            columns_end(table_row(run_info().options, row())));
}

TEST(MoeTable, HeaderOfABudgetNamesNoIterations) {
  RunInfo info = run_info();
  EXPECT_NE(table_header(info).find(" iters: 20 "), std::string::npos);
  info.options.budget = 2;
  EXPECT_NE(table_header(info).find(" iters: by budget validation: 1 budget: 2 s"), std::string::npos);
  EXPECT_TRUE(json_report(info, {}, {})["config"]["iterations"].is_null());
}

TEST(MoeTable, RowSaysWhatIsNotKnown) {
  Row unknown = row();
  unknown.asked = EPCCL_EP_STRATEGY_DEDUP;
  unknown.wire_fraction.reset();
  unknown.wrong.reset();
  Options options = run_info().options;
  options.operation = Operation::dispatch;
  const std::string text = table_row(options, unknown);
  std::istringstream words(text);
  const auto missing = std::count(std::istream_iterator<std::string>(words), {}, "N/A");
  EXPECT_EQ(missing, 3) << text;  // combine, %wire, #wrong
  EXPECT_EQ(text.find("auto"), std::string::npos);
}

TEST(MoeTable, FooterSaysWhetherBytesAreAsExpected) {
  EXPECT_NE(table_footer(run_info(), {row()}).find("Network bytes        : as expected"), std::string::npos);
  Row other = row();
  other.bytes.network = 1;
  other.wrong = 3;
  const std::string text = table_footer(run_info(), {row(), other});
  EXPECT_NE(text.find("not as expected in 1 rows"), std::string::npos);
  EXPECT_NE(text.find("Out of bounds values : 3 FAILED"), std::string::npos);
}

TEST(MoeJson, ResultsHaveTheirFields) {
  const auto want = nlohmann::ordered_json::parse(R"({
    "op": "moe", "algo": "auto", "strategy": "dedup", "tokens": 64, "total_tokens": 128, "hidden": 2048, "topk": 8,
    "experts": 64, "routing": "uniform", "type": "bfloat16", "fp8": false, "weights": false, "layout": "flat", "static": false,
    "undefined_padding": false,
    "bytes_per_rank": 4000000, "us": 1000.0, "p95_us": 2000.0, "p99_us": 2500.0, "min_us": 500.0,
    "dispatch_us": 400.0, "combine_us": 600.0, "layout_us": 100.0, "fresh_us": 1500.0, "iterations": 20,
    "tokens_per_s": 128000.0, "algbw": 4.0, "network_bytes": 3000, "expected_network_bytes": 3000,
    "dispatch_node_bytes": 2000, "expected_dispatch_node_bytes": 2000, "dispatch_local_bytes": 1000,
    "expected_dispatch_local_bytes": 1000, "imbalance": 1.25, "wire_fraction": 0.5, "wrong": 0
  })");
  EXPECT_EQ(json_report(run_info(), {row()}, {})["results"][0].dump(1), want.dump(1));
}

Overlap overlap() {
  Overlap o;
  o.communication = {0.100, 0, 0, 0};
  o.compute = {0.120, 0, 0, 0};
  o.overlapped = {0.123, 0, 0, 0};
  o.compute_beneath = {0.1212, 0, 0, 0};
  o.lost = {0.003, 0, 0, 0};
  o.slower = {0.0012, 0, 0, 0};
  o.background = {0.002, 0, 0, 0};
  o.products = 500;
  o.iterations = 9;
  return o;
}

Row overlapped_row() {
  Row r = row();
  r.overlap = overlap();
  return r;
}

TEST(MoeTable, OfAnOverlapHasItsOwnColumns) {
  RunInfo info = run_info();
  info.options.overlap = OverlapRequest{1.5};
  info.blas = "libgood.so";
  const std::string header = table_header(info);
  EXPECT_NE(header.find("# overlap: compute 1.5 times as long as the calls, matrix products by libgood.so\n"),
            std::string::npos)
      << header;
  const std::string titles = header.substr(header.find("#   tokens"));
  const std::string text = table_row(info.options, overlapped_row());
  EXPECT_EQ(text,
            "        64   auto(dedup)  100000.00  120000.00   123000.00  220000.00    3000.00      3.00      "
            "1.00   "
            "   2.00     97.00        500       0\n");
  EXPECT_EQ(columns_end(titles.substr(0, titles.find('\n'))), columns_end(text));
  Row beside_sockets = overlapped_row();
  beside_sockets.sockets = overlap();
  const std::string both = table_row(info.options, beside_sockets);
  EXPECT_EQ(both.substr(0, text.size()), text);
  EXPECT_NE(both.substr(text.size()).find("        64       sockets  100000.00"), std::string::npos) << both;
  EXPECT_EQ(json_report(info, {beside_sockets}, {})["results"][0]["overlap_sockets"]["products"], 500);
}

TEST(MoeJson, HasAnOverlapOnlyWhereItWasMeasured) {
  const auto plain = json_report(run_info(), {row()}, {});
  EXPECT_FALSE(plain["results"][0].contains("overlap"));
  EXPECT_FALSE(plain["config"].contains("compute_ratio"));
  RunInfo info = run_info();
  info.options.overlap = OverlapRequest{1.5};
  info.blas = "libgood.so";
  const auto json = json_report(info, {overlapped_row()}, {});
  EXPECT_EQ(json["config"]["compute_ratio"], 1.5);
  EXPECT_EQ(json["config"]["blas"], "libgood.so");
  const auto& found = json["results"][0]["overlap"];
  const std::vector<std::pair<const char*, double>> want = {{"communication_us", 100'000},
                                                            {"compute_us", 120'000},
                                                            {"overlapped_us", 123'000},
                                                            {"compute_beneath_us", 121'200},
                                                            {"exposed_us", 3000},
                                                            {"exposed_fraction", 0.03},
                                                            {"dilation", 0.01},
                                                            {"fraction_of_ideal", 0.97},
                                                            {"background_us", 2000},
                                                            {"background_fraction", 0.02},
                                                            {"products", 500},
                                                            {"calls", 1},
                                                            {"iterations", 9}};
  EXPECT_EQ(found.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_NEAR(found[name].get<double>(), value, 1e-6) << name;
}

TEST(MoeJson, HasCallsInARowOnlyWhereTheyWereMeasured) {
  EXPECT_FALSE(json_report(run_info(), {row()}, {})["results"][0].contains("in_a_row_us"));
  Row measured = row();
  measured.in_a_row = Summary{};
  measured.in_a_row->median = 25e-6;
  EXPECT_NEAR(json_report(run_info(), {measured}, {})["results"][0]["in_a_row_us"].get<double>(), 25, 1e-9);
}

TEST(MoeJson, NullsWhatIsNotKnownAndKeepsErrors) {
  Row unknown = row();
  unknown.wire_fraction.reset();
  unknown.wrong.reset();
  RunInfo info = run_info();
  info.options.operation = Operation::combine;
  const auto json = json_report(info, {unknown}, {"rank 3 died"});
  EXPECT_TRUE(json["results"][0]["wrong"].is_null());
  EXPECT_TRUE(json["results"][0]["wire_fraction"].is_null());
  EXPECT_TRUE(json["results"][0]["dispatch_us"].is_null());
  EXPECT_EQ(json["errors"][0], "rank 3 died");
  EXPECT_EQ(json["config"]["operation"], "combine");
}

}  // namespace
}  // namespace epccl::perf::moe
