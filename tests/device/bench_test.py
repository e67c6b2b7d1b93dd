"""What a benchmark leaves where a part of it fails: a driver that lets no process map another's memory.

  bench_test.py PROGRAM FOLDER_OF_THE_DOUBLE
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, DOUBLE = sys.argv[1:3]


class Bench(unittest.TestCase):
    def test_a_case_that_fails_is_told_and_the_others_are_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results.json"
            env = dict(os.environ, LD_LIBRARY_PATH=DOUBLE, FAKE_CUDA_IMPORT_ERROR="201")
            done = subprocess.run([PROGRAM, file, "1", "2"], env=env, capture_output=True, text=True, timeout=120)
            cases = json.loads(file.read_text())["cases"]
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        exchanges = [case for case in cases if case["case"].startswith(("alltoall", "allgather"))]
        by_processes = [case for case in exchanges if "as processes" in case["case"]]
        self.assertEqual((len(exchanges), len(by_processes)), (8, 4))
        for case in exchanges:
            self.assertEqual("failed" in case, case in by_processes, case)
        self.assertIn("201", by_processes[0]["failed"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
