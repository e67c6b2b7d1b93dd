"""The suites. Each makes jobs: what to run on one machine, and how to tell its results."""

import dataclasses
import functools
import itertools
from collections.abc import Callable

from . import cases, collective_report, contestants, moe_cases, moe_contestants, moe_report, report


@dataclasses.dataclass(frozen=True)
class AlltoallJob:
    """Exchanges of several sizes."""

    machine: cases.Case
    sizes: list
    operations: tuple

    @property
    def name(self):
        return self.machine.name

    def entries(self, machine, peers, arguments):
        """[(name, function that runs it and returns samples and what went wrong)]"""
        case = self.machine
        bytes_per_node = case.ranks_per_node**2 * max(case.nodes - 1, 1) * self.sizes[-1]
        timeout = _patience(len(self.sizes), arguments.seconds, bytes_per_node)
        sweep = contestants.Sweep(list(self.operations), self.sizes, arguments.seconds, timeout)
        by_hand = contestants.Sweep([*self.operations, "twostage"], self.sizes, arguments.seconds, timeout)
        entries = []
        for peer in peers:
            hierarchical = contestants.has_twostage(peer) and "alltoall" in self.operations and not case.local
            run = functools.partial(contestants.run_peer, machine, peer, by_hand if hierarchical else sweep)
            entries.append((peer, run))
        names = _launches(arguments.algo or case.algorithms, cases.ALGORITHMS)
        for name, operation in itertools.product(names, self.operations):
            run = functools.partial(contestants.run_epccl, machine, name, operation, sweep)
            entries.append((f"EPCCL {name} {operation}", run))
        return entries

    def rows(self, samples):
        return report.rows_of(self.machine, samples)

    def tables(self, rows, samples):
        return f"{report.result_table(rows)}\n{report.peer_table(samples)}"


@dataclasses.dataclass(frozen=True)
class CollectivesJob:
    """Each collective, in several sizes of the whole buffer."""

    machine: cases.Case
    sizes: list

    @property
    def name(self):
        return self.machine.name

    def entries(self, machine, peers, arguments):
        operations = collective_report.OPERATIONS
        timeout = _patience(len(self.sizes), arguments.seconds, 2 * self.sizes[-1])
        sweep = contestants.Sweep(list(operations), self.sizes, arguments.seconds, timeout, arguments.in_a_row)
        entries = [
            (peer, functools.partial(contestants.run_peer_collectives, machine, peer, sweep))
            for peer in peers
            if peer not in _WITHOUT_COLLECTIVES
        ]
        for name, operation in itertools.product(arguments.algo or ["auto"], operations):
            run = functools.partial(contestants.run_epccl_collective, machine, name, operation, sweep)
            entries.append((f"EPCCL {name} {operation}", run))
        return entries

    def rows(self, samples):
        return collective_report.rows_of(self.machine, samples)

    def tables(self, rows, samples):
        return "\n".join(
            [
                collective_report.result_table(rows),
                collective_report.mean_table(rows),
                report.peer_table(samples),
            ]
        )


@dataclasses.dataclass(frozen=True)
class MoeJob:
    """Dispatch and combine of one workload; one in FP8 competes with our own in bfloat16 instead of peers."""

    case: moe_cases.MoeCase

    @property
    def name(self):
        return self.case.name

    @property
    def machine(self):
        return self.case.machine

    def entries(self, machine, peers, arguments):
        load, seconds = self.case.workload, arguments.seconds
        bytes_per_node = 2 * self.machine.ranks_per_node * load.tokens * load.topk * load.row_bytes
        timeout = _patience(1, seconds, bytes_per_node)
        entries, loads = [], [load]
        if load.fp8:
            loads.append(dataclasses.replace(load, fp8=False))
        elif not load.overlap:
            for peer in peers:
                run = functools.partial(moe_contestants.run_peer, machine, self.case, peer, seconds, timeout)
                entries.append((peer, run))
        names = _launches(arguments.algo or self.case.strategies, moe_cases.STRATEGIES)
        for name, each in itertools.product(names, loads):
            run = functools.partial(moe_contestants.run_epccl, machine, each, name, seconds, 4 * timeout)
            entries.append((f"EPCCL {name} {'fp8' if each.fp8 else 'bfloat16'}", run))
        return entries

    def rows(self, samples):
        return moe_report.rows_of(self.case, samples)

    def tables(self, rows, samples):
        if self.case.workload.overlap:
            return moe_report.overlap_table(rows)
        return f"{moe_report.result_table(rows)}\n{moe_report.other_table(self.case, samples)}"


_WITHOUT_COLLECTIVES = ("gloo",)  # its benchmark only makes exchanges


def _launches(names, known):
    """One launch measures all in turn."""
    return ["all"] if set(names) == set(known) else names


def _patience(sizes, seconds, bytes_per_node):
    """Starting the ranks, and a call of the largest size, some twenty times, at a tenth of what 1 Gbit/s carries."""
    return 60 + sizes * (3 * seconds + 5) + 20 * bytes_per_node / 12.5e6


def _alltoall_jobs(operations, arguments):
    names = arguments.case or list(cases.DEFAULT_SIZES)
    return [
        AlltoallJob(case, cases.sizes_of(case, arguments.min, arguments.max), operations)
        for case in map(cases.parse_case, names)
    ]


def _collectives_jobs(arguments):
    names = arguments.case or collective_report.DEFAULT_CASES
    sizes = functools.partial(cases.sizes_of, default=collective_report.SIZES)
    return [
        CollectivesJob(case, sizes(case, arguments.min, arguments.max)) for case in map(cases.parse_case, names)
    ]


def _moe_jobs(arguments):
    if arguments.min is not None or arguments.max is not None:
        raise ValueError("--min and --max are not for moe: its cases have their sizes")
    return [MoeJob(moe_cases.parse_case(name)) for name in arguments.case or moe_cases.DEFAULT_CASES]


@dataclasses.dataclass(frozen=True)
class Suite:
    algorithms: tuple
    jobs: Callable  # of the parsed arguments
    verdicts: Callable  # of all rows


SUITES = {
    "alltoall": Suite(
        cases.ALGORITHMS, functools.partial(_alltoall_jobs, ("alltoall",)), report.verdicts
    ),
    "alltoallv": Suite(
        cases.ALGORITHMS, functools.partial(_alltoall_jobs, ("alltoallv", "alltoallv_zipf")), report.verdicts
    ),
    "collectives": Suite(cases.ALGORITHMS, _collectives_jobs, collective_report.verdicts),
    "moe": Suite(moe_cases.STRATEGIES, _moe_jobs, moe_report.verdicts),
}
