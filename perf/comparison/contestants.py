"""Starting EPCCL and its peers, and reading what they print."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from emulated_cluster import namespaces, processes

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTER = ROOT / "perf" / "cluster"
PEERS = ROOT / "build" / "peers"

# Peer: the program it needs, and whether MPI's two-stage exchange can be made by hand with it.
PROGRAMS = {
    "ompi-ob1": "alltoall_openmpi",
    "ompi-ucx": "alltoall_openmpi",
    "ompi-ob1-eager": "alltoall_openmpi",
    "ompi-ucx-eager": "alltoall_openmpi",
    "mpich": "alltoall_mpich",
    "mpich-eager": "alltoall_mpich",
    "gloo": "alltoall_gloo",
}
_PRELOADED = {"mpich": "yieldshim.so", "mpich-eager": "yieldshim.so"}  # without which a peer would be compared unfairly
_ZIPF_EXPONENT = 0.8  # that of perf/peers/layout.hpp


@dataclasses.dataclass
class Sample:
    """One run's result for one size, which is in bytes per rank pair, of the whole buffer (collectives), or
    (moe) per row."""

    contestant: str  # a peer, or EPCCL's algorithm
    operation: str
    size: int
    us: float
    p99_us: float
    wrong: int
    wire_fraction: float | None = None


class Unavailable(Exception):
    """A case cannot be measured here; for people."""


def binaries():
    return Path(os.environ.get("EPCCL_BIN") or ROOT / "build" / "bin")


def check_binaries():
    """ValueError: one is not there."""
    for program in ("epccl-perf", "epccl-run"):
        if not os.access(binaries() / program, os.X_OK):
            told = "EPCCL_BIN=" if os.environ.get("EPCCL_BIN") else ""
            raise ValueError(f"{told}{binaries()}: no program {program} is there")


def commit():
    """The checkout's; of programs that are not its own it is not known."""
    if os.environ.get("EPCCL_BIN"):
        return f"unknown (EPCCL_BIN={binaries()})"

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
        ).stdout.strip()

    name = git("rev-parse", "--short=12", "HEAD")
    return (name or "unknown") + ("-modified" if git("status", "--porcelain", "--untracked-files=no") else "")


def available_peers():
    needed = {peer: [program, _PRELOADED.get(peer, program)] for peer, program in PROGRAMS.items()}
    return [peer for peer, files in needed.items() if all((PEERS / file).exists() for file in files)]


def has_twostage(peer):
    return PROGRAMS[peer] != "alltoall_gloo"


class Machine:
    """Where a case runs: this machine, or an emulated cluster that is up inside the `with` block."""

    def __init__(self, case):
        self.case = case

    def __enter__(self):
        if not self.case.local:
            subprocess.run([CLUSTER, "down"], check=False)
            namespaces.adopt_orphans(False)  # the cluster is to outlive what starts it
            result = subprocess.run(
                [CLUSTER, "up", str(self.case.nodes), self.case.rate, "--until-exit", str(os.getpid())],
                check=False,
                stderr=subprocess.PIPE,
                text=True,
            )
            if result.returncode:
                raise Unavailable(f"no emulated cluster: {result.stderr.strip()}")
        namespaces.adopt_orphans()  # but no launch is to outlive its end
        return self

    def __exit__(self, *_):
        if not self.case.local:
            subprocess.run([CLUSTER, "down"], check=False)

    def output_of(self, command, timeout):
        """(standard output, what went wrong) of a command, ended at `timeout` seconds with all it has started."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
            trouble = ""
            try:
                if child.wait(timeout):
                    trouble = f"exit code {child.returncode}"
            except subprocess.TimeoutExpired:
                trouble = f"killed after {timeout:.0f} s"
            finally:
                self._end(child)
            output.seek(0)
            errors.seek(0)
            return output.read(), "\n    ".join([trouble, *errors.read().splitlines()[-8:]])

    def _end(self, child):
        """Ends what is left of a launch: it may have been stopped half way, or may have forgotten processes."""
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(3)
        processes.kill_all(lambda: processes.descendants(os.getpid()))
        if not self.case.local:
            subprocess.run([CLUSTER, "clean"], check=False)
        child.wait()
        with contextlib.suppress(ChildProcessError):  # adopted orphans
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


@dataclasses.dataclass
class Sweep:
    """What a contestant is asked for in one launch."""

    operations: list
    sizes: list  # bytes per rank pair; of collectives those of the whole buffer
    seconds: float  # of timed calls, per size
    timeout: float  # of one operation's sizes, in seconds
    in_a_row: int = 1  # calls of an iteration


def run_peer(machine, peer, sweep):
    case, operations = machine.case, sweep.operations
    command = [ROOT / "perf" / "peers" / "launch"]
    command += ["--local"] if case.local else []
    command += [peer, str(case.ranks_per_node), ",".join(operations)]
    command += [str(sweep.sizes[0]), str(sweep.sizes[-1]), str(sweep.seconds), str(sweep.in_a_row)]
    output, trouble = machine.output_of(command, sweep.timeout * len(operations))
    samples = []
    for line in output.splitlines():
        words = line.split()
        if len(words) == 10 and words[0] == peer and words[9] in ("ok", "BAD"):
            bad = int(words[9] == "BAD")
            samples.append(Sample(peer, words[1], int(words[3]), float(words[5]), float(words[8]), bad))
    missing = len(sweep.sizes) * len(operations) - len(samples)
    wrong = sum(sample.wrong for sample in samples)
    troubles = [f"{missing} results are missing: {trouble}"] if missing else []
    troubles += [f"{wrong} of {len(samples)} results have WRONG data and do not count"] if wrong else []
    return samples, "; ".join(troubles)


def run_peer_collectives(machine, peer, sweep):
    """All sizes are those of the whole buffer: alltoall's too, which the peers' programs take for each pair. A pair's
    may be rounded down, and is at least a byte."""
    ranks = machine.case.ranks
    others = dataclasses.replace(sweep, operations=[each for each in sweep.operations if each != "alltoall"])
    samples, trouble = run_peer(machine, peer, others)
    sizes_of_pairs = [size // ranks for size in sweep.sizes if size >= ranks]
    if not sizes_of_pairs:
        return samples, trouble
    pairs = dataclasses.replace(sweep, operations=["alltoall"], sizes=sizes_of_pairs)
    of_pairs, more_trouble = run_peer(machine, peer, pairs)
    samples += [dataclasses.replace(each, size=_nearest(sweep.sizes, each.size * ranks)) for each in of_pairs]
    return samples, "; ".join(filter(None, [trouble, more_trouble]))


def run_epccl(machine, algorithm, operation, sweep):
    """`algorithm` may be "all"."""
    command = ["alltoallv" if operation.startswith("alltoallv") else "alltoall", "--per-pair"]
    command += ["--pattern", f"zipf:{_ZIPF_EXPONENT}"] if operation == "alltoallv_zipf" else []
    return _run_perf(machine, algorithm, operation, sweep, command, "bytes_per_pair")


def run_epccl_collective(machine, algorithm, operation, sweep):
    """Sums of floats; `algorithm` may be "all". broadcast is in place, as MPI's is."""
    command = [operation, "-d", "float", "--in-a-row", str(sweep.in_a_row)]
    command += ["--placement", "in" if operation == "broadcast" else "out"]
    return _run_perf(machine, algorithm, operation, sweep, command, "size")


def _run_perf(machine, algorithm, operation, sweep, command, size_field):
    """A sweep of epccl-perf, whose results tell their size as `size_field`."""
    command = [*command, "-b", str(sweep.sizes[0]), "-e", str(sweep.sizes[-1]), "-f", "4"]
    command += ["--budget", str(sweep.seconds), "--algo", algorithm, "-R", str(int(machine.case.registered))]
    results, trouble = epccl_results(machine, command, sweep.timeout * 3)
    samples = []
    for row in results:
        size = _nearest(sweep.sizes, row[size_field])
        sample = Sample(row["algo"], operation, size, row["time_us"], row["p99_us"], row["wrong"] or 0)
        sample.wire_fraction = row.get("wire_fraction")
        samples.append(sample)
    missing = len(sweep.sizes) * (3 if algorithm == "all" else 1) - len(samples)
    # A run that went well has measured all: sizes of the same whole elements once.
    ended = samples and not trouble.startswith(("exit code", "killed after"))
    return samples, f"{missing} results are missing: {trouble}" if missing and not ended else ""


def _nearest(sizes, measured):
    """The size that was asked for: whole elements may make it a little smaller."""
    return min(sizes, key=lambda wanted: abs(wanted - measured))


def epccl_results(machine, arguments, timeout):
    """(results in epccl-perf's report, what went wrong) of a run on all ranks of the machine."""
    case = machine.case
    launcher = [CLUSTER, "run", str(case.ranks_per_node)]
    if case.local:
        launcher = [binaries() / "epccl-run", "-n", str(case.ranks)]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        command = [binaries() / "epccl-perf", *arguments, "-J", str(report)]
        output, trouble = machine.output_of([*launcher, *command], timeout)
        try:
            return json.loads(report.read_text())["results"], trouble
        except (OSError, ValueError, KeyError):
            return [], "\n    ".join([trouble, *output.splitlines()[-8:]])
