"""Groups: calls that start together at the end of a block, or are only estimated."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Iterator

from . import _library
from ._library import begin, call
from ._structs import SimInfo


class _Open(threading.local):
    depth = 0
    held: list = []


_open = _Open()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Sends and receives inside ``with group():`` start together at its end, and cannot deadlock whatever their order. Groups nest.
    When the block raises, nothing of the group is run."""
    call("epcclGroupStart")
    if _open.depth == 0:
        _open.held = []
    _open.depth += 1
    try:
        yield
    except BaseException:
        _leave_group(raising=True)
        raise
    _leave_group(raising=False)


@contextlib.contextmanager
def simulated_group() -> Iterator[list[float]]:
    """As :func:`group`, but its calls are not run: afterwards the list holds one number, the microseconds that the cost model
    expects of them."""
    result: list[float] = []
    call("epcclGroupStart")
    _open.depth += 1
    try:
        yield result
    except BaseException:
        _leave_group(raising=True)
        raise
    info = SimInfo()
    try:
        call("epcclGroupSimulateEnd", ctypes.byref(info))
    finally:
        _open.depth -= 1
    result.append(info.estimatedTime)


def keep_while_open(held: object) -> None:
    """Keeps what a call uses until the thread's outermost group has ended, if one is open."""
    if _open.depth > 0:
        _open.held.append(held)


def _leave_group(raising: bool) -> None:
    _open.depth -= 1
    try:
        if raising:
            # A group of which one call was refused does nothing at all.
            _library.code_of("epcclSend", None, 0, 0, 0, None, None)
            _library.code_of("epcclGroupEnd")
        else:
            begin("epcclGroupEnd")
    finally:
        if _open.depth == 0:
            _open.held = []
