"""What probe_driver says of a driver whose answers are known: the double, with eight channels for the streams of a priority.

  probe_test.py PROGRAM FOLDER_OF_THE_DOUBLE
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, DOUBLE = sys.argv[1:3]


def facts(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "facts.json"
        env = dict(os.environ, LD_LIBRARY_PATH=DOUBLE, FAKE_CUDA_CHANNELS="8")
        done = subprocess.run([PROGRAM, *arguments, file], env=env, capture_output=True, text=True, timeout=550)
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
        return json.loads(file.read_text()), done.stdout


class Probe(unittest.TestCase):
    def test_a_call_has_a_limit_of_time_whatever_it_does(self):
        found, _ = facts("--limits")
        waits, never_returns, dies = found["calls"]
        self.assertTrue(waits["waits"])
        self.assertFalse(waits["never_returns"])
        self.assertTrue(never_returns["never_returns"])
        self.assertIn("NEVER RETURNS", never_returns["says"])
        self.assertEqual(dies["no_answer"], "the process died of signal 9")

    def test_every_question_is_answered_by_a_line_and_a_fact(self):
        found, said = facts()
        self.assertEqual(said.splitlines(), [fact["says"] for fact in found["calls"] + found["channels"]])
        self.assertEqual([fact for fact in found["calls"] + found["channels"] if "no_answer" in fact], [])
        self.assertIn("WAITS", found["calls"][0]["says"])
        # Those of the library's own while a stream is held do not wait for it, or there would be no collectives.
        asked = {fact["call"]: fact for fact in found["calls"]}
        for call in ("cuMemcpyBatchAsync, on the library's stream", "cuStreamWaitEvent, for an event of the held stream", "cuPointerGetAttributes",
                     "cuMemExportToShareableHandle, cuMemImportFromShareableHandle", "cuStreamBeginCapture to cuGraphDestroy, on another stream"):
            self.assertFalse(asked[call]["waits"], asked[call]["says"])
        # With as many held streams as there are channels nothing of their priority goes on.
        channels = found["channels"]
        full = [fact for fact in channels if fact["priority"] == "the same" and fact["held"] >= 8]
        self.assertEqual(len(full), 4)
        for fact in full:
            self.assertEqual(set(fact["stuck"].values()), {fact["others"]}, fact["says"])
        # Those of the library's priority all do, whichever stream is held.
        apart = [fact for fact in channels if fact["priority"] == "the library's"]
        self.assertEqual(len([fact for fact in apart if fact["null_stream"]]), 1)
        for fact in apart:
            self.assertEqual(set(fact["stuck"].values()), {0}, fact["says"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
