"""What tests/device/run says of its goals."""

import unittest

import goals

CEILING = 4e12
MOE = {
    "tokens": 128, "total_tokens": 1024, "hidden": 7168, "type": "bfloat16", "us": 60.0, "dispatch_us": 20.0, "combine_us": 30.0,
    "dispatch_node_bytes": 50_000_000, "dispatch_local_bytes": 10_000_000, "network_bytes": 0,
}


def perf(name, *rows):
    return {"program": f"epccl-perf {name}", "state": "measured", "results": {"results": list(rows)}}


def judged(benchmarks):
    return {goal["case"]: goal for goal in goals.judge(benchmarks)}


class Judging(unittest.TestCase):
    def test_what_was_not_measured_is_neither_reached_nor_missed(self):
        self.assertEqual({goal["reached"] for goal in goals.judge([])}, {None})
        skipped = {"program": "bench_kernels", "state": "skipped", "why": "it was not built"}
        self.assertEqual({goal["reached"] for goal in goals.judge([skipped])}, {None})

    def test_a_case_of_a_benchmark_brings_its_goal(self):
        cases = [{"case": "fast", "goal": 0.9, "fraction_of_ceiling": 0.91}, {"case": "slow", "goal": 0.8, "fraction_of_floor": 0.79},
                 {"case": "a wait", "p50_microseconds": 3, "p99_microseconds": 8}, {"case": "without a goal", "seconds": 3}]
        found = judged([{"program": "bench_copies", "state": "measured", "results": {"cases": cases}}])
        self.assertTrue(found["fast"]["reached"])
        self.assertFalse(found["slow"]["reached"])
        self.assertEqual([(found[f"a wait: {part}, us"]["goal"], found[f"a wait: {part}, us"]["measured"]) for part in ("p50", "p99")],
                         [("told", 3), ("told", 8)])
        self.assertFalse([case for case in found if "without a goal" in case])

    def test_a_case_that_failed_was_not_measured_and_says_why(self):
        cases = [{"case": "broken", "goal": 0.9, "failed": "rank 1: no memory"}, {"case": "fast", "goal": 0.9, "fraction_of_ceiling": 0.91}]
        found = judged([{"program": "bench_copies", "state": "failed", "results": {"cases": cases}},
                        {"program": "bench_kernels", "state": "failed", "results": {"FP8 quantise": {"failed": "no kernel"}}}])
        self.assertIsNone(found["broken"]["reached"])
        self.assertTrue(found["fast"]["reached"])
        line, = goals.table([found["broken"]])
        self.assertTrue(line.startswith("not measured") and line.endswith("(failed: rank 1: no memory)"), line)
        self.assertEqual(found["FP8 quantise, of the copy's bandwidth"]["failed"], "no kernel")

    def test_the_highest_ceiling_of_the_run_is_everybodys(self):
        def measured(program, ceiling, **results):
            return {"program": program, "results": {"copy_ceiling_bytes_per_second": ceiling, **results}}

        case = {"case": "fast", "goal": 0.9, "fraction_of_ceiling": 0.96}
        kernel = {"us": 1.0, "of_copy": 0.9}
        found = judged([measured("bench_copies", 1.5e12, cases=[case]), measured("bench_collectives", 1.0e12),
                        measured("bench_kernels", 2.0e12, **{"unpermute (sum)": kernel}), perf("moe-deepseek-v3", MOE)])
        self.assertAlmostEqual(found["fast"]["measured"], 0.72)
        self.assertAlmostEqual(found["unpermute (sum), of the copy's bandwidth"]["measured"], 0.9)
        floor = "dispatch + combine, deepseek-v3, 128 tokens a rank (time-sliced), of the floor"
        self.assertAlmostEqual(found[floor]["measured"], goals.floor_fraction(MOE, 2.0e12))
        self.assertEqual(found["the ceiling: the fastest large copy inside the GPU, bytes/s"]["measured"], 2.0e12)

    def test_a_goal_is_asked_of_calls_alone_and_in_a_row(self):
        case = {"case": "alltoall", "goal": 0.9, "fraction_of_floor": 0.6, "in_a_row_fraction_of_floor": 0.95}
        found = judged([{"program": "bench_collectives", "results": {"copy_ceiling_bytes_per_second": 1e12, "cases": [case]}}])
        self.assertFalse(found["alltoall"]["reached"])
        self.assertTrue(found["alltoall, calls in a row"]["reached"])

    def test_the_floor_of_dispatch_and_combine_is_each_byte_once(self):
        # 1024 tokens x 7168 x 2 bytes are read and come back, 60 MB of rows are written and read: at 4 TB/s, in 50 us.
        expected = (1024 * 7168 * 2 + 60e6) / CEILING / 50e-6
        self.assertAlmostEqual(goals.floor_fraction(MOE, CEILING), expected)
        self.assertIsNone(goals.floor_fraction(MOE, None))

    def test_the_split_of_dispatch_and_combine_is_told_part_by_part(self):
        name = "dispatch + combine, deepseek-v3, 128 tokens a rank (time-sliced)"
        split = {"time_us": 55.0, "kernel_us": 40.0, "copy_us": 1.0, "signal_us": 9.0, "host_us": 5.0, "iterations": 10}
        found = judged([perf("moe-deepseek-v3", {**MOE, "split": split})])
        self.assertEqual([found[f"{name}: {part}, us"]["measured"] for part in ("time", "kernel", "copy", "signal", "host")],
                         [55.0, 40.0, 1.0, 9.0, 5.0])
        self.assertTrue(found[f"{name}: signal, us"]["reached"])
        self.assertIsNone(judged([perf("moe-deepseek-v3", MOE)])[f"{name}: kernel, us"]["reached"])

    def test_a_graph_is_held_against_eager_calls(self):
        case = "static dispatch + combine, 128 tokens (time-sliced): graph over eager"
        eager = perf("moe-static", {**MOE, "us": 90.0, "in_a_row_us": 60.0})
        self.assertTrue(judged([eager, perf("moe-static-graph", {**MOE, "us": 40.0})])[case]["reached"])
        self.assertFalse(judged([eager, perf("moe-static-graph", {**MOE, "us": 41.0})])[case]["reached"])
        self.assertIsNone(judged([eager])[case]["reached"])
        # One by one each call waits for itself, which no graph's does.
        self.assertIsNone(judged([perf("moe-static", MOE), perf("moe-static-graph", {**MOE, "us": 40.0})])[case]["reached"])

    def test_dilation_has_an_upper_bound_and_must_be_half_of_what_cores_cost(self):
        case = "alltoall (time-sliced): dilation by copy engines over that by compute cores"

        def dilated(**by_engine):
            rows = [{"copy_engine": engine, "overlap": {"dilation": value}} for engine, value in by_engine.items()]
            return judged([perf("alltoall-overlap", *rows)])

        found = dilated(never=0.05, always=0.02)
        self.assertTrue(found["alltoall (always, time-sliced): dilation of products"]["reached"])
        self.assertNotIn("alltoall (never, time-sliced): dilation of products", found)
        self.assertTrue(found[case]["reached"])
        self.assertFalse(dilated(never=0.03, always=0.02)[case]["reached"])
        self.assertIsNone(dilated(always=0.02)[case]["reached"])
        self.assertIsNone(dilated(never=0.0, always=0.02)[case]["reached"])

    def test_processes_are_judged_by_how_the_gpu_serves_them(self):
        def measured(fraction):
            cases = [{"case": "alltoall, 8 ranks as threads", "goal": 0.9, "fraction_of_ceiling": 0.95},
                     {"case": "alltoall, 8 ranks as processes", "goal": 0.85, "fraction_of_ceiling": fraction}]
            return {"cases": cases if fraction < 0.85 else cases[1:]}

        eager, graph = perf("moe-static, MPS", {**MOE, "in_a_row_us": 60.0}), perf("moe-static-graph, MPS", {**MOE, "us": 30.0})
        found = judged([{"program": "bench_copies", "processes": "time-sliced", "results": measured(0.5)},
                        {"program": "bench_copies, MPS", "processes": "MPS", "results": measured(0.86)},
                        {**eager, "processes": "MPS"}, {**graph, "processes": "MPS"}])
        self.assertTrue(found["alltoall, 8 ranks as threads"]["reached"])
        self.assertFalse(found["alltoall, 8 ranks as processes (time-sliced)"]["reached"])
        self.assertTrue(found["alltoall, 8 ranks as processes (MPS)"]["reached"])
        self.assertTrue(found["static dispatch + combine, 128 tokens (MPS): graph over eager"]["reached"])
        self.assertIsNone(found["static dispatch + combine, 128 tokens (time-sliced): graph over eager"]["reached"])

    def test_what_makes_copies_within_a_gpu_is_told_and_no_goal(self):
        cases = [{"case": "a copy", "made_by": "copy engines", "bytes_per_second": 2e12, "fraction_of_ceiling": 1.0}]
        judgement = goals.judge([{"program": "bench_copies", "results": {"cases": cases}}])
        found = [goal for goal in judgement if goal["goal"] == "told" and goal["reached"]]
        self.assertEqual([goal["case"] for goal in found], ["a copy: by copy engines"])
        self.assertIn("2e+12", goals.table(found)[0])

    def test_the_table_has_a_line_a_goal(self):
        found = goals.judge([])
        self.assertEqual(len(goals.table(found)), len(found))
        self.assertIn("not measured", goals.table(found)[0])


if __name__ == "__main__":
    unittest.main()
