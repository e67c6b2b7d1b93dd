"""Communicators that a program has not destroyed when it ends."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Protocol

#: How long calls that are under way then may take: the other ranks may never come to them.
SECONDS_TO_END = 5.0


class Endable(Protocol):
    def abort(self) -> None: ...

    def _leave(self, patient: bool) -> bool: ...


_live: weakref.WeakSet[Endable] = weakref.WeakSet()


def begins(comm: Endable) -> None:
    """It is one of those that are ended with the program."""
    _live.add(comm)


def _program_failed() -> bool:
    # Python keeps the exception that it has reported; an interactive one goes on after it.
    return hasattr(sys, "last_value") and not hasattr(sys, "ps1")


def _end_all() -> None:
    left = list(_live)
    if _program_failed():
        for comm in left:
            comm.abort()
        return
    # All at once: whom one waits for may wait for this rank in another.
    deadline = time.monotonic() + SECONDS_TO_END
    while left:
        patient = time.monotonic() < deadline
        left = [comm for comm in left if not comm._leave(patient)]
        if left:
            time.sleep(0.001)


atexit.register(_end_all)
# The end of a forked child is not this rank's.
os.register_at_fork(after_in_child=_live.clear)
