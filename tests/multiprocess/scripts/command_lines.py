"""perf's scripts: what cannot be is said in one line, before anything is built or measured; and output that nobody reads ends them silently.

command_lines.py BIN      the folder of epccl-perf and epccl-run"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = sys.argv.pop(1)
BROKEN_PIPE = 141


def run(command, output=subprocess.PIPE, **environment):
    given = [ROOT / "perf" / command[0], *command[1:]]
    return subprocess.run(
        given, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, env={**os.environ, "EPCCL_BIN": BIN, **environment}
    )


def run_in_shell(command, redirection):
    given = [ROOT / "perf" / command[0], *command[1:]]
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *given]
    return subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=60, env={**os.environ, "EPCCL_BIN": BIN})


class Refused(unittest.TestCase):
    def expect(self, command, text, **environment):
        told = run(command.split(), **environment)
        self.assertEqual((told.returncode, told.stdout), (2, ""), told.stderr)
        self.assertEqual(told.stderr.splitlines()[-1], f"perf/{text}")

    def test_compare(self):
        alltoall = "compare alltoall --case local@2 --peers none"
        for number in ("foo", "1.5K", "1T", ""):
            said = f"'{number}' is not a number of bytes: write 65536, 64K, 1M or 1G"
            self.expect(f"{alltoall} --min={number}", f"compare: error: argument --min: {said}")
            self.expect(f"torch --largest={number}", f"torch: error: argument --largest: {said}")
        self.expect(f"{alltoall} --in-a-row 3", "compare: error: --in-a-row is not for alltoall: only collectives are timed several in a row")
        self.expect("compare moe --in-a-row 16", "compare: error: --in-a-row is not for moe: only collectives are timed several in a row")
        self.expect("compare collectives --in-a-row 0", "compare: error: --passes, --seconds and --in-a-row must be positive")
        self.expect(alltoall, "compare: error: EPCCL_BIN=/nope: no program epccl-perf is there", EPCCL_BIN="/nope")

    def test_cases(self):
        for case, said in (
            ("2x4@foo", "'2x4@foo' is not a case: 'foo' is not a rate: write 1gbit, 500mbit or none"),
            ("999x4@1gbit", "'999x4@1gbit' is not a case: 999 nodes: 1 to 250 are possible"),
            ("foo", "'foo' is not a case: write NODESxRANKS@RATE (4x8@4gbit), local@RANKS or local@RANKS:unregistered"),
        ):
            self.expect(f"compare alltoall --case {case}", f"compare: error: {said}")
            self.expect(f"torch --case {case}", f"torch: error: argument --case: {said}")

    def test_cluster(self):
        self.expect("cluster up", "cluster up: error: the following arguments are required: nodes")
        self.expect("cluster up x", "cluster up: error: argument nodes: invalid int value: 'x'")
        self.expect("cluster up 251", "cluster: 251 nodes: 1 to 250 are possible")


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = Path(folder.name) / "results.json"
        row = {"size": 64, "algo": "auto", "time_us": 10.0, "wrong": 0, "out_of_place": {"bus_bw": 1.0}, "in_place": None}
        config = {"operation": "allreduce", "ranks": 4, "nodes": 1}
        self.good = json.dumps({"config": config, "results": [row], "errors": []})

    def test_a_file_that_a_killed_run_has_left(self):
        for program in ("summary", "plot"):
            for text, said in (("", "it is empty"), ("\n", "it is empty"), (self.good[:-30], "no JSON, or cut off: ")):
                self.results.write_text(text)
                told = run([program, self.results, self.results.with_suffix(".svg")][: 2 + (program == "plot")])
                if "needs matplotlib" in told.stderr:
                    continue
                self.assertEqual((told.returncode, told.stdout), (1, ""))
                self.assertRegex(told.stderr, rf"^perf/{program}: {self.results}: not what epccl-perf -J writes: {said}[^\n]*\n$")

    def test_output_that_nobody_reads(self):
        self.results.write_text(self.good)
        measured = self.results.with_name("compare.json")
        compare = ["compare", "alltoall", "--case", "local@2", "--peers", "none", "--min", "1K", "--max", "1K", "--passes", "1"]
        for command in (
            ["summary", self.results],
            *([program, "--help"] for program in ("summary", "plot", "compare", "torch", "init_cost", "cluster")),
            [*compare, "--seconds", "0.01", "--out", measured],
        ):
            reader, writer = os.pipe()
            os.close(reader)
            told = run(command, writer)
            os.close(writer)
            # argparse of some Pythons passes over it; perf/cluster is killed by the signal.
            codes = {BROKEN_PIPE, 0, -signal.SIGPIPE} if "--help" in command else {BROKEN_PIPE}
            self.assertIn(told.returncode, codes, (command, told.stderr))
            self.assertNotIn("Error", told.stderr, command)
        self.assertTrue(json.loads(measured.read_text())["rows"], f"what was measured is written all the same: {told.stderr}")

    def test_output_that_cannot_be_written(self):
        """Is said in a line, once all is measured."""
        self.results.write_text(self.good)
        measured = self.results.with_name("compare.json")
        compare = ["compare", "alltoall", "--case", "local@2", "--case", "local@3", "--peers", "none", "--min", "1K", "--max", "1K", "--passes", "1"]
        programs = [["summary", self.results], *([program, "--help"] for program in ("summary", "plot", "compare", "torch", "init_cost"))]
        for command in (*programs, [*compare, "--seconds", "0.01", "--out", measured]):
            for redirection, why in ((">/dev/full", "No space left on device (errno 28)"), (">&-", "Bad file descriptor (errno 9)")):
                measured.unlink(missing_ok=True)
                told = run_in_shell(command, redirection)
                said = told.stderr.splitlines()
                self.assertEqual((told.returncode, said[-1:]), (1, [f"perf/{command[0]}: cannot write standard output: {why}"]), told.stderr)
                if command[0] != "compare" or "--help" in command:
                    self.assertEqual(len(said), 1, told.stderr)
                    continue
                cases = {row["case"] for row in json.loads(measured.read_text())["rows"]}
                self.assertEqual(cases, {"local@2", "local@3"}, f"what was measured is written all the same: {told.stderr}")

    def test_results_that_cannot_be_written(self):
        compare = ["compare", "alltoall", "--case", "local@2", "--peers", "none", "--min", "1K", "--max", "1K", "--passes", "1"]
        told = run([*compare, "--seconds", "0.01", "--out", "/dev/full"])
        self.assertEqual((told.returncode, told.stderr.splitlines()[-1]), (1, "perf/compare: --out /dev/full: No space left on device"))
        self.assertIn("### local@2", told.stdout)
        self.assertNotIn("Written", told.stdout)


if __name__ == "__main__":
    unittest.main()
