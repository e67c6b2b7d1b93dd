#include "perf/src/report.hpp"

#include <gtest/gtest.h>

#include "epccl/epccl.h"

namespace epccl::perf {
namespace {

RunInfo run_info() {
  RunInfo info;
  info.options.sweep = {1024, 4096, 1 << 20, 2};
  info.options.datatypes = {DataType{}};
  info.options.link_rate = 4e9;
  info.ranks = {{0, 4711, "left", 0}, {1, 12, "right", 1}};
  info.nodes = 2;
  info.library_version = 100;
  info.arguments = {"epccl-perf", "alltoall"};
  info.environment = {"EPCCL_RANK=0"};
  info.start_time = "2024-01-02 03:04:05";
  info.end_time = "2024-01-02 03:04:06";
  return info;
}

Row row() {
  Row r;
  r.operation = Operation::alltoall;
  r.size = 1 << 20;
  r.count = 131072;
  r.ranks = 2;
  r.link_bytes = 463167;  // 0.971 ms at what is left of 4 Gbit/s
  r.algorithm = "two_stage";
  r.out_of_place = Measurement{{1e-3, 2.5e-3, 0.5e-3}, 20, 0};
  r.link_rate = 4e9;
  return r;
}

Row reducing_row() {
  Row r = row();
  r.operation = Operation::reduce;
  r.redop = RedOp::max;
  r.root = 1;
  r.in_place = Measurement{{2e-3, 3e-3, 1e-3}, 10, 5};
  return r;
}

TEST(Row, BandwidthsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(row().algbw(*row().out_of_place), 1.048576);
  EXPECT_DOUBLE_EQ(row().busbw(*row().out_of_place), 1.048576 / 2);
  EXPECT_DOUBLE_EQ(reducing_row().busbw(*reducing_row().in_place), 1.048576 / 2);
}

TEST(FixedWidth, GivesUpDecimalsBeforeItGivesUpTheColumn) {
  EXPECT_EQ(fixed_width(3.14159, 7), "   3.14");
  EXPECT_EQ(fixed_width(1234.567, 7), "1234.57");
  EXPECT_EQ(fixed_width(12345.67, 7), "12345.7");
  EXPECT_EQ(fixed_width(1234567.8, 7), "1234568");
  EXPECT_EQ(fixed_width(123456789, 7), "1.2e+08");
  EXPECT_EQ(fixed_width(1234567, 6), " 1e+06");
}

TEST(Table, HeaderSaysWhichSizesHaveNoElement) {
  RunInfo info = run_info();
  EXPECT_EQ(table_header(info).find("measured as 0 bytes"), std::string::npos);
  info.options.sweep.first = 2 * DataType{}.bytes - 1;
  EXPECT_NE(table_header(info).find(fmt::format("# Sizes below {} bytes are measured as 0 bytes of {}",
                                                2 * DataType{}.bytes, DataType{}.name)),
            std::string::npos)
      << table_header(info);
  info.options.per_pair = true;
  EXPECT_EQ(table_header(info).find("measured as 0 bytes"), std::string::npos);
  info.options.per_pair = false;
  info.options.pattern.kind = Pattern::Kind::file;
  EXPECT_EQ(table_header(info).find("measured as 0 bytes"), std::string::npos) << "the file says how much";
}

TEST(Table, HeaderHasNcclTestsLinesRanksAndColumns) {
  EXPECT_EQ(table_header(run_info()),
            "# epccl-perf version " EPCCL_VERSION_STRING
            " epccl-headers=100 epccl-library=100\n"
            "# Collective test starting: alltoall\n"
            "# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 agg "
            "iters: 1 "
            "validation: 1 graph: 0\n"
            "# nRanks 2 nNodes 2 memory: plain stream: NULL link rate: 4 Gbit/s\n"
            "#\n"
            "# Using devices\n"
            "#  Rank  0 Group  0 Pid   4711 on       left device  0 [host] node 0\n"
            "#  Rank  1 Group  0 Pid     12 on      right device  0 [host] node 1\n"
            "#\n"
            "#                                                              out-of-place                     "
            "  in-place            \n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time  "
            " algbw   busbw  #wrong       algo      p50      p99   %wire\n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  "
            "(GB/s)  (GB/s)                        (us)     (us)     (%)\n");
}

TEST(Table, HeaderSaysHowManyCallsThereAre) {
  RunInfo info = run_info();
  info.options.group_calls = 5;
  info.options.in_a_row = 3;
  EXPECT_NE(table_header(info).find("iters: 20 agg iters: 5 validation"), std::string::npos);
  EXPECT_NE(table_header(info).find("calls in a row: 3"), std::string::npos);
  info.options.budget = 0.5;
  EXPECT_NE(table_header(info).find("iters: by budget agg iters: 5"), std::string::npos);
  EXPECT_NE(table_header(info).find("budget: 0.5 s"), std::string::npos);
  EXPECT_TRUE(json_report(info, {}, {})["config"]["iterations"].is_null());
}

TEST(Table, RowHasNcclTestsColumnsThenOurs) {
  EXPECT_EQ(table_row(row()),
            "     1048576        131072     float    none      -1  1000.00    1.05    0.52       0      N/A  "
            "   N/A     N/A     N/A  two_stage  1000.00  2500.00   97.10\n");
}

TEST(Table, RowHasBothPlacementsOperationAndRoot) {
  EXPECT_EQ(table_row(reducing_row()),
            "     1048576        131072     float     max       1  1000.00    1.05    1.05       0  2000.00  "
            "  0.52    0.52   "
            "    5  two_stage  1000.00  2500.00   97.10\n");
  EXPECT_EQ(reducing_row().wrong(), 5u);
}

TEST(Table, RowOfAnOverlapSaysWhatStaysExposed) {
  Row r = row();
  r.engine = "always";
  r.overlap = Overlap{};
  r.overlap->communication.median = 1e-3;
  r.overlap->compute.median = 2e-3;
  r.overlap->overlapped.median = 2.1e-3;
  r.overlap->compute_beneath.median = 2.05e-3;
  r.overlap->lost.median = 0.1e-3;
  r.overlap->slower.median = 0.05e-3;
  const std::string text = table_row(r);
  EXPECT_NE(text.find("always    1000.00    2000.00     2100.00     100.00     10.00      2.50"),
            std::string::npos)
      << text;
  RunInfo info = run_info();
  info.options.overlap = OverlapRequest{};
  EXPECT_NE(table_header(info).find("dilation"), std::string::npos);
}

TEST(Table, BelowARowIsWhatItsTimeWentTo) {
  Row r = row();
  r.out_of_place->split = Split{200e-6, 120e-6, 20e-6, 50e-6, 7};
  const std::string line =
      "#   split of 200.0 us: kernel 120.0 us (60.0 %), copy 20.0 us (10.0 %), signal 50.0 us (25.0 %), "
      "host 10.0 us (5.0 %)\n";
  EXPECT_EQ(table_row(r), table_row(row()) + line);
  const auto json = json_report(run_info(), {r, row()}, {}).at("results");
  EXPECT_DOUBLE_EQ(json[0].at("split").at("signal_us"), 50);
  EXPECT_NEAR(json[0].at("split").at("host_us").get<double>(), 10, 1e-9);
  EXPECT_EQ(json[0].at("split").at("iterations"), 7);
  EXPECT_FALSE(json[1].contains("split"));
}

TEST(Table, RowSaysWhatIsNotKnown) {
  Row unchecked = row();
  unchecked.out_of_place->wrong.reset();
  unchecked.link_rate.reset();
  EXPECT_EQ(table_row(unchecked),
            "     1048576        131072     float    none      -1  1000.00    1.05    0.52     N/A      N/A  "
            "   N/A     N/A     N/A  two_stage  1000.00  2500.00     N/A\n");
}

TEST(Table, FooterCountsWrongElementsAndAveragesBandwidth) {
  EXPECT_EQ(table_footer(run_info(), {row(), row()}),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 0.524288\n"
            "#\n"
            "# Collective test concluded: alltoall\n");
  Row bad = row();
  bad.out_of_place->wrong = 17;
  EXPECT_EQ(table_footer(run_info(), {row(), bad}).substr(0, 35), "# Out of bounds values : 17 FAILED\n");
  EXPECT_NE(table_footer(run_info(), {}).find("# Avg bus bandwidth    : 0\n"), std::string::npos);
}

TEST(Json, IsNcclTestsDocumentWithOurFields) {
  const auto want = nlohmann::ordered_json::parse(R"({
    "version": 2,
    "start_time": "2024-01-02 03:04:05",
    "args": ["epccl-perf", "alltoall"],
    "env": ["EPCCL_RANK=0"],
    "epccl_version": 100,
    "config": {
      "nthreads": 1, "ngpus": 1, "minimum_bytes": 1024, "maximum_bytes": 4096, "step_factor": 2,
      "warmup_iters": 5, "iterations": 20, "aggregated_iterations": 1, "calls_in_a_row": 1, "validation": 1, "graph": 0,
      "blocking_collectives": "false", "parallel_init": "false", "operation": "alltoall",
      "ranks": 2, "nodes": 2,
      "registered_memory": "false", "link_rate_bits": 4000000000.0,
      "devices": [
        {"rank": 0, "group": 0, "pid": 4711, "hostname": "left", "device": 0, "device_hex": "host",
         "device_info": "host memory", "node": 0},
        {"rank": 1, "group": 0, "pid": 12, "hostname": "right", "device": 0, "device_hex": "host",
         "device_info": "host memory", "node": 1}]
    },
    "results": [
      {"size": 1048576, "count": 131072, "type": "float", "redop": "none", "root": "-1",
       "out_of_place": {"time": 1000.0, "alg_bw": 1.048576, "bus_bw": 0.524288, "nwrong": 0},
       "in_place": null, "actual_iterations": 20, "experiment_name": "",
       "algo": "two_stage", "bytes_per_pair": 524288, "time_us": 1000.0, "p99_us": 2500.0, "min_us": 500.0,
       "iterations": 20, "wrong": 0, "wire_fraction": 0.971}],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "average_bus_bandwidth": {"bandwidth": 0.524288, "okay": "unchecked"},
    "errors": [],
    "end_time": "2024-01-02 03:04:06"
  })");
  EXPECT_EQ(json_report(run_info(), {row()}, {}).dump(1), want.dump(1));
}

TEST(Json, LeavesOutOrNullsWhatIsNotKnownAndKeepsErrors) {
  Row unchecked = row();
  unchecked.out_of_place->wrong.reset();
  unchecked.link_rate.reset();
  const auto json = json_report(run_info(), {unchecked}, {"rank 3 died"});
  EXPECT_TRUE(json["results"][0]["wrong"].is_null());
  EXPECT_TRUE(json["results"][0]["out_of_place"]["nwrong"].is_null());
  EXPECT_FALSE(json["results"][0].contains("wire_fraction"));
  EXPECT_EQ(json["errors"][0], "rank 3 died");
}

TEST(Json, HasTheEnvironmentThatMattersAndNoSecret) {
  const char* variables[] = {"HOME=/root", "EPCCL_NET=tcp", "EPCCL_JOB_KEY=sesame", "UCX_TLS=tcp", nullptr};
  RunInfo info = run_info();
  info.environment = relevant_environment(variables);
  const std::vector<std::string> want = {"EPCCL_NET=tcp", "EPCCL_JOB_KEY=(set)", "UCX_TLS=tcp"};
  EXPECT_EQ(json_report(info, {row()}, {})["env"].get<std::vector<std::string>>(), want);
}

TEST(Json, TellsHowOftenAGraphWasLaunched) {
  RunInfo info = run_info();
  info.options.graph_launches = 7;
  EXPECT_EQ(json_report(info, {row()}, {})["config"]["graph"], 7);
}

TEST(Json, SaysWhenDataWereWrong) {
  Row bad = row();
  bad.out_of_place->wrong = 3;
  const auto json = json_report(run_info(), {bad}, {});
  EXPECT_EQ(json["out_of_bounds"]["count"], 3);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "false");
}

}  // namespace
}  // namespace epccl::perf
