"""Host streams and events."""

from __future__ import annotations

import ctypes

from . import _library
from ._library import call
from .errors import Result


class Stream:
    """An ordered queue of background work. A call with ``stream=`` returns at once; :meth:`synchronize` waits and raises the
    first error. The stream keeps the calls' buffers alive until then; do not touch them before."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        self._held: list = []
        call("epcclStreamCreate", ctypes.byref(self._handle))

    def synchronize(self) -> None:
        """Waits for all work of the stream; raises and forgets its first error."""
        held, self._held = self._held, []
        try:
            call("epcclStreamSynchronize", self._pointer())
        finally:
            held.clear()

    def query(self) -> bool:
        """Whether all work is complete. Never blocks."""
        return _is_complete("epcclStreamQuery", self._pointer())

    def wait_event(self, event: "Event") -> None:
        """What is given to the stream from now on waits until the event, as recorded last, is complete."""
        call("epcclStreamWaitEvent", self._pointer(), event._pointer())

    def destroy(self) -> None:
        """Frees the stream once its work is complete."""
        handle, self._handle = self._handle, None
        if handle:
            _library.code_of("epcclStreamDestroy", handle)
            self._held.clear()

    def _pointer(self):
        if not self._handle:
            raise ValueError("the stream was destroyed")
        return self._handle

    def _keep(self, *objects) -> None:
        self._held.append(objects)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_) -> None:
        self.destroy()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.destroy()


class Event:
    """Marks a place in a stream, for other streams and for threads to wait for. Errors stay with the stream."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        call("epcclEventCreate", ctypes.byref(self._handle))

    def record(self, stream: Stream | None = None) -> None:
        """Marks the end of the work that `stream` has now. None: inline calls are over, and so the event is complete."""
        call("epcclEventRecord", self._pointer(), pointer(stream))

    def query(self) -> bool:
        """Whether the event is complete; one that was never recorded is. Never blocks."""
        return _is_complete("epcclEventQuery", self._pointer())

    def synchronize(self) -> None:
        """Waits until the event, as recorded last, is complete."""
        call("epcclEventSynchronize", self._pointer())

    def destroy(self) -> None:
        """Forgets the event; whoever waits for it is served."""
        handle, self._handle = self._handle, None
        if handle:
            _library.code_of("epcclEventDestroy", handle)

    def _pointer(self):
        if not self._handle:
            raise ValueError("the event was destroyed")
        return self._handle

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.destroy()


def pointer(stream: Stream | None):
    """The C handle; None is the NULL stream, whose calls run inline."""
    return None if stream is None else stream._pointer()


def _is_complete(name: str, handle) -> bool:
    code = _library.code_of(name, handle)
    if code not in (Result.SUCCESS, Result.IN_PROGRESS):
        raise _library.failure(name, code)
    return code == Result.SUCCESS
