"""Host streams and events."""

from __future__ import annotations

import collections
import ctypes
import threading
import weakref
from typing import Callable

from . import _library
from ._library import call
from .errors import Result


class Stream:
    """An ordered queue of background work. A call with ``stream=`` returns at once; :meth:`synchronize` waits and raises the
    first error. The stream keeps the calls' buffers alive until the program knows that they are over, by that, by :meth:`query` or by an
    :class:`Event`; do not touch them before."""

    def __init__(self) -> None:
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._lock = threading.Lock()
        self._held: collections.deque[tuple[int, tuple[object, ...]]] = collections.deque()
        self._kept = 0  # how many so far, with those that are not held any more
        self._to_come = 0  # calls of groups that have not ended
        self._over = False  # destroyed, once they have
        call("epcclStreamCreate", ctypes.byref(self._handle))

    def synchronize(self) -> None:
        """Waits for all work of the stream; raises and forgets its first error."""
        place, handle = self._place(), self._pointer()  # what is refused has waited for nothing
        try:
            call("epcclStreamSynchronize", handle)
        finally:
            self._is_past(place)

    def query(self) -> bool:
        """Whether all work is complete. Never blocks."""
        place = self._place()
        complete = _is_complete("epcclStreamQuery", self._pointer())
        if complete:
            self._is_past(place)
        return complete

    def wait_event(self, event: "Event") -> None:
        """What is given to the stream from now on waits until the event, as recorded last, is complete."""
        call("epcclStreamWaitEvent", self._pointer(), event._pointer())

    def destroy(self) -> None:
        """Frees the stream once its work is complete. Inside a group that has calls of it: at the group's end."""
        with self._lock:
            self._over = True
            if self._to_come > 0:
                return
            handle, self._handle = self._handle, None
        if handle:
            _library.code_of("epcclStreamDestroy", handle)
            self._held.clear()

    def _pointer(self) -> ctypes.c_void_p:
        if self._over or not self._handle:
            raise ValueError("the stream was destroyed")
        return self._handle

    def _keep(self, *objects: object) -> None:
        with self._lock:
            self._kept += 1
            self._held.append((self._kept, objects))

    def _awaits(self, calls: int) -> None:
        """As many more, or less, of groups that have not ended."""
        with self._lock:
            self._to_come += calls
            ends = self._over and self._to_come == 0
        if ends:
            self.destroy()

    def _place(self) -> int:
        return self._kept

    def _marker(self) -> Callable[[], None]:
        """To be called once the work is over that the stream has now."""
        place, itself = self._place(), weakref.ref(self)

        def passed() -> None:
            stream = itself()
            if stream is not None:
                stream._is_past(place)

        return passed

    def _is_past(self, place: int) -> None:
        """All calls are over that were given to the stream before this was its place."""
        over = []
        with self._lock:
            while self._held and self._held[0][0] <= place:
                over.append(self._held.popleft())
        # Without the lock: what nothing else refers to ends now, and the end of a communicator may take a while.
        over.clear()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.destroy()


class Event:
    """Marks a place in a stream, for other streams and for threads to wait for. Errors stay with the stream."""

    def __init__(self) -> None:
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._marked: Callable[[], None] = lambda: None  # what its completion says of a stream
        call("epcclEventCreate", ctypes.byref(self._handle))

    def record(self, stream: Stream | None = None) -> None:
        """Marks the end of the work that `stream` has now. None: inline calls are over, and so the event is complete."""
        # Before: what another thread gives the stream meanwhile may lie behind the mark.
        marked = (lambda: None) if stream is None else stream._marker()
        call("epcclEventRecord", self._pointer(), pointer(stream))
        self._marked = marked

    def query(self) -> bool:
        """Whether the event is complete; one that was never recorded is. Never blocks."""
        marked = self._marked
        complete = _is_complete("epcclEventQuery", self._pointer())
        if complete:
            marked()
        return complete

    def synchronize(self) -> None:
        """Waits until the event, as recorded last, is complete."""
        marked = self._marked
        call("epcclEventSynchronize", self._pointer())
        marked()

    def destroy(self) -> None:
        """Forgets the event; whoever waits for it is served."""
        handle, self._handle = self._handle, None
        if handle:
            _library.code_of("epcclEventDestroy", handle)

    def _pointer(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError("the event was destroyed")
        return self._handle

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.destroy()


def pointer(stream: Stream | None) -> ctypes.c_void_p | None:
    """The C handle; None is the NULL stream, whose calls run inline."""
    if stream is None:
        return None
    if not isinstance(stream, Stream):
        raise TypeError(f"stream is {stream!r}: not a Stream")
    return stream._pointer()


def _is_complete(name: str, handle: ctypes.c_void_p) -> bool:
    code = _library.code_of(name, handle)
    if code not in (Result.SUCCESS, Result.IN_PROGRESS):
        raise _library.failure(name, code)
    return code == Result.SUCCESS
