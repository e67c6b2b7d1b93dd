"""What ends with the communicator, or the group, that it is of."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Dependent(Protocol):
    def _leave(self) -> None: ...


class Dependents:
    """What ends with its owner, for as long as something else refers to it. One thread may add to it while another one ends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: weakref.WeakSet[Dependent] = weakref.WeakSet()

    def add(self, one: Dependent) -> None:
        with self._lock:
            self._all.add(one)

    def leave(self) -> None:
        with self._lock:
            left = list(self._all)
        for one in left:
            one._leave()
