"""What is in epccl-perf's JSON file when a run is killed.

  interrupted.py EPCCL_RUN EPCCL_PERF      two ranks each; ends with 0 if all is as it should be
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = 60  # seconds
MANY_ROWS = ["allreduce", "-b", "1K", "-e", "64K", "-f", "2", "-d", "all", "-o", "all", "-n", "1000"]
A_LONG_ROW = ["allreduce", "-b", "1K", "-e", "1K", "-n", "1000000"]
EARLIER = "of an earlier run"


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            sys.exit("waited in vain")
        time.sleep(0.01)
    return found


def rank_0(table):
    """Its process, by the table's line "#  Rank  0 Group  0 Pid 123 on ..."."""
    words = [line.split() for line in table.read_text().splitlines() if line.startswith("#  Rank  0 ")]
    return int(words[0][6]) if words else 0


def killed(run, perf, arguments, when, kill):
    """Runs until `when(file)`, then kill(launcher, pid of rank 0); the file's text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, table = folder / "report.json", folder / "table"
        file.write_text(EARLIER)
        with table.open("w") as out:
            command = [run, "-n", "2", "--grace", "1", perf, *arguments, "-J", file]
            launcher = subprocess.Popen(command, stdout=out)
        try:
            wait_for(lambda: rank_0(table) and when(file))
            kill(launcher, rank_0(table))
            code = launcher.wait(PATIENCE)
        finally:
            launcher.kill()
        text = file.read_text()
        assert code != 0, "the run was over before it was killed"
        # A moment of writing is hit by a kill now and then: no more than one file stays, and none is half.
        assert len(list(folder.iterdir())) <= 3, list(folder.iterdir())
        return text


def kill_rank_0(_launcher, pid):
    subprocess.run(["kill", "-KILL", str(pid)], check=True)


def main():
    run, perf = sys.argv[1:]
    for name, kill in {
        "an interrupt": lambda launcher, _: launcher.send_signal(signal.SIGINT),
        "SIGTERM": lambda launcher, _: launcher.send_signal(signal.SIGTERM),
        "the death of rank 0": kill_rank_0,
    }.items():
        text = killed(run, perf, MANY_ROWS, lambda file: file.read_text() != EARLIER, kill)
        report = json.loads(text)
        assert report["results"], f"{name}: no rows"
        assert report["errors"] == ["the run was not over when this was written"], f"{name}: {report['errors']}"
        text = killed(run, perf, A_LONG_ROW, lambda _: True, kill)
        assert text == EARLIER, f"{name} before the first row: {text!r}"


if __name__ == "__main__":
    main()
