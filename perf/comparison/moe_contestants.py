"""Runs of the suite moe: epccl-perf moe, and the same tokens by the peers' alltoallv."""

import dataclasses
import subprocess
import tempfile
from pathlib import Path

from . import contestants
from .moe_cases import STRATEGIES

_SEED = 1  # of the routing, which must be the same for all


@dataclasses.dataclass
class MoeSample(contestants.Sample):
    """EPCCL's."""

    dispatch_us: float | None = None
    combine_us: float | None = None
    layout_us: float | None = None
    fp8: bool = False
    overlap: dict | None = None  # epccl-perf's, of --overlap
    network_bytes: int | None = None  # between nodes, as the library counts them
    expected_network_bytes: int | None = None  # and as the routing has them
    sockets: dict | None = None  # the same bytes by a bare socket, beneath the same compute


def _workload_options(workload):
    options = {"tokens": workload.tokens, "hidden": workload.hidden, "experts": workload.experts}
    options |= {"topk": workload.topk, "routing": workload.routing, "seed": _SEED}
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def run_epccl(machine, workload, strategy, seconds, timeout):
    """`strategy` may be "all". Buffers are of epcclMemAlloc, but where one machine is to have ordinary ones."""
    command = ["moe", *_workload_options(workload), "--type", "bfloat16", "--layout", "flat"]
    command += ["--fp8"] if workload.fp8 else []
    command += ["-R", "0"] if machine.case.local and not machine.case.registered else []
    if workload.overlap:
        pair = machine.case.nodes == 2 and machine.case.ranks == 2
        command += ["--overlap", "--overlap-sockets"] if pair else ["--overlap"]
    command += ["--ep-strategy", strategy, "--budget", str(seconds)]
    results, trouble = contestants.epccl_results(machine, command, timeout)
    samples = []
    for row in results:
        sample = MoeSample(row["algo"], "moe", workload.row_bytes, row["us"], row["p99_us"], row["wrong"] or 0)
        sample.wire_fraction = row.get("wire_fraction")
        sample.dispatch_us, sample.combine_us = row["dispatch_us"], row["combine_us"]
        sample.layout_us, sample.fp8 = row["layout_us"], workload.fp8
        sample.network_bytes, sample.expected_network_bytes = row["network_bytes"], row["expected_network_bytes"]
        sample.overlap, sample.sockets = row.get("overlap"), row.get("overlap_sockets")
        samples.append(sample)
    missing = (len(STRATEGIES) if strategy == "all" else 1) - len(samples)
    return samples, f"{missing} results are missing: {trouble}" if missing else ""


def run_peer(machine, case, peer, seconds, timeout):
    """The matrix of rows is epccl-perf's: the very tokens that it dispatches."""
    with tempfile.TemporaryDirectory() as directory:
        matrix = Path(directory) / "matrix"
        command = [contestants.binaries() / "epccl-perf", "moe", *_workload_options(case.workload)]
        command += ["--ranks", str(case.machine.ranks), "--write-matrix", str(matrix), "--copies", case.copies]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            return [], f"no matrix: {result.stderr.strip()}"
        sweep = contestants.Sweep([f"moe:{matrix}"], [case.workload.row_bytes], seconds, timeout)
        return contestants.run_peer(machine, peer, sweep)
