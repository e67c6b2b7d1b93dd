"""Groups: calls that start together at the end of a block, or are only estimated."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Iterator, Sequence

from . import _library
from ._library import begin, call
from ._structs import SimInfo
from .streams import Stream


class _Open(threading.local):
    """The thread's outermost group."""

    def __init__(self) -> None:
        self.depth = 0
        self.held: list[tuple[Sequence[object], Stream | None]] = []

    def enter(self) -> None:
        call("epcclGroupStart")
        self.depth += 1

    def leave(self, issued: bool) -> None:
        self.depth -= 1
        if self.depth > 0:
            return
        held, self.held = self.held, []
        for objects, stream in held:
            if issued and stream is not None:
                stream._keep(*objects)
        for _, stream in held:
            if stream is not None:
                stream._awaits(-1)


_open = _Open()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Sends and receives inside ``with group():`` start together at its end, and cannot deadlock whatever their order. Groups nest: all
    is done at the end of the outermost one, also where an inner block is that of a stream. When the block raises, nothing of the group is
    run, nor of those around it."""
    _open.enter()
    try:
        yield
    except BaseException:
        _leave_group(raising=True)
        raise
    _leave_group(raising=False)


@contextlib.contextmanager
def simulated_group() -> Iterator[list[float]]:
    """As :func:`group`, but its calls are not run: afterwards the list holds one number, the microseconds that the cost model
    expects of them. Inside another group it holds -1: what becomes of the calls is the outermost group's business."""
    result: list[float] = []
    _open.enter()
    try:
        yield result
    except BaseException:
        _leave_group(raising=True)
        raise
    info = SimInfo()
    try:
        call("epcclGroupSimulateEnd", ctypes.byref(info))
    finally:
        _open.leave(issued=False)
    result.append(info.estimatedTime)


def keep_in_use(objects: Sequence[object], stream: Stream | None = None) -> None:
    """Keeps what a call uses until the library is done with it: until the thread's group has ended, if one is open, and from then on,
    with a stream, until that is past the call."""
    if _open.depth > 0:
        _open.held.append((objects, stream))
        if stream is not None:
            stream._awaits(1)
    elif stream is not None:
        stream._keep(*objects)


def _leave_group(raising: bool) -> None:
    try:
        if raising:
            # A group of which one call was refused does nothing at all.
            _library.code_of("epcclSend", None, 0, 0, 0, None, None)
            _library.code_of("epcclGroupEnd")
        else:
            begin("epcclGroupEnd")
    finally:
        _open.leave(issued=not raising)
