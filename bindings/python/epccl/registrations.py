"""Memory that a communicator was told of."""

from __future__ import annotations

import ctypes
from typing import Protocol

from ._library import call
from .buffers import View


class _Owner(Protocol):
    """A communicator."""

    def _pointer(self) -> ctypes.c_void_p: ...


class Registration:
    """A registered buffer."""

    def __init__(self, comm: _Owner, view: View) -> None:
        self._comm, self._view = comm, view
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        call("epcclCommRegister", comm._pointer(), view.address, view.nbytes, ctypes.byref(self._handle))

    def deregister(self) -> None:
        """Ends the registration. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            call("epcclCommDeregister", self._comm._pointer(), handle)


class Window:
    """A registered window."""

    def __init__(self, comm: _Owner, view: View, symmetric: bool) -> None:
        self._comm, self._view = comm, view
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        made = ctypes.byref(self._handle)
        call("epcclCommWindowRegister", comm._pointer(), view.address, view.nbytes, made, int(symmetric), comm=comm._pointer())

    def deregister(self) -> None:
        """Ends the registration. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            call("epcclCommWindowDeregister", self._comm._pointer(), handle)
