"""Which ranks keep the others waiting. The page docs/stragglers.md says what is found, and what is not."""

from __future__ import annotations

import dataclasses
import enum

from ._structs import RankTimesStruct, StragglersStruct


class Lateness(enum.IntEnum):
    """Why a rank comes late."""

    NOT_LATE = 0
    BETWEEN_CALLS = 1  #: it takes longer than the median rank until it calls
    IN_CALLS = 2  #: it has more of its own to do in calls than the median rank, or takes longer for it
    OTHERWISE = 3  #: neither explains half of it: it waits for something else


@dataclasses.dataclass(frozen=True)
class RankTimes:
    """What is known of one rank, in seconds, summed up over the calls that were compared."""

    late: float  #: how much less it waited than the median rank, call by call; below 0: it came early
    between: float  #: outside of the communicator's calls
    own: float  #: in calls, not waiting
    waited: float  #: in calls, for other ranks
    last_calls: int  #: so many times it waited least of all ranks
    late_by: Lateness


@dataclasses.dataclass(frozen=True)
class Stragglers:
    """What :meth:`Communicator.find_stragglers` has found: the same on all ranks."""

    calls: int  #: that were compared
    seconds: float  #: that they took, and what lies between them
    lost: float  #: so much shorter it had been if who was last in each call had come with the median rank
    ranks: list[RankTimes]

    @property
    def late(self) -> list[int]:
        """The ranks that are late, the worst first."""
        late = [rank for rank, times in enumerate(self.ranks) if times.late_by != Lateness.NOT_LATE]
        return sorted(late, key=lambda rank: -self.ranks[rank].late)

    def __str__(self) -> str:
        share = 100 / self.seconds if self.seconds > 0 else 0.0
        lines = [f"{self.calls} calls in {self.seconds:.3g} s, {self.lost * share:.1f} % lost to who came last"]
        lines.append("rank  late s  late %  last in  between s    own s  waited s")
        for rank, it in enumerate(self.ranks):
            why = "" if it.late_by == Lateness.NOT_LATE else "  <- " + it.late_by.name.lower().replace("_", " ")
            lines.append(
                f"{rank:4} {it.late:7.3f} {it.late * share:7.1f} {it.last_calls:8} {it.between:10.3f} {it.own:8.3f} {it.waited:9.3f}{why}"
            )
        return "\n".join(lines)


def found_by(summary: StragglersStruct, ranks: list[RankTimesStruct]) -> Stragglers:
    times = [RankTimes(it.late, it.between, it.own, it.waited, it.lastCalls, Lateness(it.lateBy)) for it in ranks]
    return Stragglers(summary.calls, summary.seconds, summary.lost, times)
