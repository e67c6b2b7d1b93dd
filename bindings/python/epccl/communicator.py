"""Communicators: how they are made, end, and what they tell."""

from __future__ import annotations

import ctypes
import functools
import time
from types import TracebackType
from typing import TYPE_CHECKING, Collection, Sequence, SupportsIndex

from . import _library, program_end
from ._library import begin, call
from ._structs import CallTimesStruct, RankTimesStruct, StatisticsStruct, StragglersStruct, UniqueIdStruct, check_range, id_struct, number_array
from .buffers import Buffer, View
from .config import Settings, config_of, config_of_child
from .datatypes import DataType
from .dependents import Dependents
from .errors import EpcclError, InvalidUsage, Result
from .exchanges import Exchanges
from .groups import keep_in_use
from .registrations import Registration, Window
from .stragglers import Stragglers, found_by

if TYPE_CHECKING:
    from typing_extensions import Unpack


def get_unique_id() -> bytes:
    """Makes an id and opens the rendezvous it names in this process. Call it on one rank and send the bytes to all by any means;
    they admit to the communicator, so keep them private."""
    made = UniqueIdStruct()
    call("epcclGetUniqueId", ctypes.byref(made))
    return bytes(made)


class Communicator(Exchanges):
    """One rank's end of a communicator. Calls are ordered as issued, and every rank issues the same collectives in the same order.

    Buffers are anything with the buffer protocol, C-contiguous, NumPy arrays above all, or PyTorch's CPU tensors; the datatype follows
    from them, or is said with ``datatype=`` (``DataType.BFLOAT16`` over a uint16 array, for example). With ``stream=None`` a call
    returns when the result is in place; with a :class:`Stream` it returns at once. Calls on one communicator must not overlap,
    except those of what epccl.h says "any thread" of: :meth:`abort`, :meth:`async_error`, timeouts and what is asked only.

    It ends with :meth:`destroy`, or with its ``with`` block: destroyed, or aborted where the block raises (``sys.exit(0)`` is no
    error). One that nothing refers to any more is destroyed, or aborted if a call is under way. Those that are left when the
    program ends are destroyed by an exit function; calls that are under way then get 5 seconds, and what is not over is aborted.
    After an exception that nothing has caught all are aborted."""

    _handle: ctypes.c_void_p | None

    def __init__(
        self,
        nranks: int,
        unique_id: bytes,
        rank: int,
        **settings: Unpack[Settings],
    ) -> None:
        """Joins the communicator of ``unique_id`` (:func:`get_unique_id`) as ``rank`` of ``nranks``. Blocks until all have joined,
        unless :class:`Settings` say otherwise. Inside ``with group():`` it is made when the group ends: so one thread may be several
        ranks."""
        self._handle = ctypes.c_void_p()
        given, config = id_struct("unique_id", unique_id), config_of(settings)
        begin("epcclCommInitRankConfig", ctypes.byref(self._handle), nranks, given, rank, config)
        keep_in_use([self._handle])
        self._learn()

    @classmethod
    def from_launcher(cls, **settings: Unpack[Settings]) -> "Communicator":
        """Joins the communicator of all processes that epccl-run, torchrun, Slurm, Open MPI, MPICH or PMI(x) started; without
        a launcher this process is the only rank."""
        made = cls.__new__(cls)
        made._handle = ctypes.c_void_p()
        begin("epcclCommInitLauncher", ctypes.byref(made._handle), config_of(settings))
        keep_in_use([made._handle])
        made._learn()
        return made

    @classmethod
    def from_ids(
        cls,
        nranks: int,
        unique_ids: Sequence[bytes],
        rank: int,
        **settings: Unpack[Settings],
    ) -> "Communicator":
        """As ``Communicator(nranks, unique_id, rank)`` with several ids, at most ``nranks``: the same ones in the same order on every
        rank. All meet at the first."""
        made = cls.__new__(cls)
        made._handle = ctypes.c_void_p()
        ids = [id_struct(f"unique_ids[{at}]", one) for at, one in enumerate(unique_ids)]
        given = (UniqueIdStruct * max(len(ids), 1))(*ids)
        config = config_of(settings)
        begin("epcclCommInitRankScalable", ctypes.byref(made._handle), nranks, rank, len(ids), given, config)
        keep_in_use([made._handle])
        made._learn()
        return made

    @classmethod
    def init_all(cls, nranks: int, devices: Collection[SupportsIndex] | None = None) -> "list[Communicator]":
        """All ``nranks`` ranks of a communicator in this process, in rank order. One thread that is several ranks puts their
        collectives (and their :meth:`finalize`) into one ``with group():``. devices: what :attr:`device` tells, one a rank; None: 0, 1,
        ..."""
        if devices is not None and len(devices) != nranks:
            raise ValueError(f"devices has {len(devices)} entries: {nranks} are needed, one a rank")
        check_range("nranks", nranks, ctypes.c_int)
        given = None if devices is None else number_array("devices", devices, ctypes.c_int)
        handles = (ctypes.c_void_p * max(nranks, 1))()
        call("epcclCommInitAll", handles, nranks, given)
        keep_in_use([handles])
        return [cls._of(ctypes.c_void_p(handle)) for handle in handles]

    def split(
        self,
        color: int | None,
        key: int = 0,
        **settings: Unpack[Settings],
    ) -> "Communicator | None":
        """Makes new communicators of the ranks with the same ``color``, ordered by ``key``, then by old rank. All ranks call it;
        those with ``color=None`` are in none and get None. Without settings these are the parent's; where one is given, the others are
        as in a communicator that is made anew. Of a nonblocking parent the new one is made in the background."""
        handle = ctypes.c_void_p()
        number = -1 if color is None else color
        config = config_of_child(settings)
        begin("epcclCommSplit", self._pointer(), number, key, ctypes.byref(handle), config, comm=self._handle)
        keep_in_use([handle, self])
        return self._of(handle) if handle else None

    def shrink(
        self,
        exclude: Collection[SupportsIndex],
        *,
        abort: bool = False,
        **settings: Unpack[Settings],
    ) -> "Communicator":
        """Makes a communicator of the ranks that are not in ``exclude``, in their old order; exactly those call it, and the others
        may be dead. ``abort``: first ends all work of this one with an error; needed where it has failed already. The rest is as for
        :meth:`split`."""
        ranks = number_array("exclude", exclude, ctypes.c_int)
        handle = ctypes.c_void_p()
        config = config_of_child(settings)
        begin("epcclCommShrink", self._pointer(), ranks, len(exclude), ctypes.byref(handle), config, int(abort), comm=self._handle)
        keep_in_use([handle, self])
        return self._of(handle)

    @classmethod
    def _of(cls, handle: ctypes.c_void_p) -> "Communicator":
        made = cls.__new__(cls)
        made._handle = handle
        made._learn()
        return made

    def _learn(self) -> None:
        """What is kept beyond the end of the communicator, if it is made already. From now on the program's end is this one's, too."""
        self._groups = Dependents()  # until they are freed the library keeps what it has of the communicator
        program_end.begins(self)
        if not self.in_progress:
            _ = self.size, self.rank

    @functools.cached_property
    def size(self) -> int:
        """Number of ranks. Not before the communicator is made."""
        return self._number("epcclCommCount")

    @functools.cached_property
    def rank(self) -> int:
        """This rank. Not before the communicator is made."""
        return self._number("epcclCommUserRank")

    def _number(self, name: str) -> int:
        value = ctypes.c_int()
        call(name, self._pointer(), ctypes.byref(value), comm=self._handle)
        return value.value

    @property
    def device(self) -> int:
        """The device number given to :meth:`init_all`; 0 for other communicators; of a split or shrink, the parent's."""
        return self._number("epcclCommDevice")

    # ---- life

    @property
    def in_progress(self) -> bool:
        """Whether something goes on in the background: of a communicator with ``blocking=False`` that is being made, split, shrunk,
        finalized or revoked. Until it is over other calls raise, but for :meth:`abort`. Never blocks; any thread."""
        return self._async_code() == Result.IN_PROGRESS

    def wait(self, seconds: float | None = None) -> "Communicator":
        """Waits until nothing is :attr:`in_progress`, and raises what went wrong with it. TimeoutError after ``seconds``, and it goes on."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.in_progress:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"still in progress after {seconds} s")
            time.sleep(0.0005)
        if (failed := self.async_error()) is not None:
            raise failed
        return self

    def finalize(self) -> None:
        """Completes all work; afterwards only error queries, destroy and abort are allowed."""
        begin("epcclCommFinalize", self._pointer())
        keep_in_use([self])

    def destroy(self) -> None:
        """Finalizes and frees. Returns within the timeout also when peers are gone. A second call does nothing."""
        handle = self._handle
        if handle:
            call("epcclCommDestroy", handle)
            self._handle = None
            self._groups.leave()

    def abort(self) -> None:
        """Ends all work with an error, here and on the other ranks, and frees. Any thread may call it while another one blocks
        in a collective; that call then raises :class:`RemoteError`."""
        handle, self._handle = self._handle, None
        if handle:
            call("epcclCommAbort", handle)
            self._groups.leave()

    def revoke(self) -> None:
        """As :meth:`abort`, but the communicator stays, to be split or shrunk, and destroyed."""
        begin("epcclCommRevoke", self._pointer(), 0, comm=self._handle)

    def async_error(self) -> EpcclError | None:
        """The first error of background or remote work, None while there is none. Never blocks; any thread."""
        code = self._async_code()
        if code in (Result.SUCCESS, Result.IN_PROGRESS):
            return None
        return _library.failure("asynchronous", code, self._pointer())

    def _async_code(self) -> int:
        code = ctypes.c_int()
        call("epcclCommGetAsyncError", self._pointer(), ctypes.byref(code))
        return code.value

    def lost_ranks(self) -> list[int]:
        """The ranks, ascending, of which this one knows that they take no part in anything any more: they have died or have left. One that
        is stuck is not among them until its process is ended. Ask it when a call has failed: they are what :meth:`shrink` is to exclude
        (docs/recovery.md). Takes half a second at most; any thread."""
        ranks, count = (ctypes.c_int * self.size)(), ctypes.c_int()
        call("epcclCommGetLostRanks", self._pointer(), ranks, self.size, ctypes.byref(count), comm=self._handle)
        return ranks[: count.value]

    def set_timeout(self, seconds: float | None) -> None:
        """How long calls that begin from now on wait for a silent rank, of this rank alone; None: as the communicator was made. Any
        thread."""
        call("epcclCommSetTimeout", self._pointer(), 0.0 if seconds is None else float(seconds), comm=self._handle)

    def set_copy_engine(self, use: str | None) -> None:
        """Who moves the data of collectives issued from now on: "always" copy engines, "never", or "auto"; None: as the communicator
        was made. Every rank says the same before the same call."""
        text = None if use is None else use.encode()
        call("epcclCommSetCopyEngine", self._pointer(), text, comm=self._handle)

    def statistics(self) -> dict[str, int]:
        """What this rank has exchanged with ranks of other nodes: the counters of epcclStatistics_t by name (epccl.h). Waits until
        the calls issued before are over."""
        counted = StatisticsStruct()
        call("epcclCommGetStatistics", self._pointer(), ctypes.byref(counted), comm=self._handle)
        return {name: getattr(counted, name) for name in StatisticsStruct.COUNTERS}

    def measure_calls(self, on: bool) -> None:
        """Whether calls that begin from now on are measured, on this rank; for :meth:`call_times` and :meth:`find_stragglers`."""
        call("epcclCommMeasureCalls", self._pointer(), int(on), comm=self._handle)

    def call_times(self) -> dict[str, float]:
        """Where the time of the measured calls went since this was asked last: how many `calls`, and seconds in `total`, of these in
        `kernel`, `copy`, `signal` (waiting for other ranks) and `host` (profile.h). Waits until the calls issued before are over."""
        times = CallTimesStruct()
        call("epcclCommGetCallTimes", self._pointer(), ctypes.byref(times), comm=self._handle)
        return {name: getattr(times, name) for name in ("calls", *CallTimesStruct.SECONDS)}

    def find_stragglers(self, threshold: float = 0.05) -> Stragglers:
        """Which ranks kept the others waiting in the measured calls since this was asked last: those that came late by ``threshold`` of the
        time, or more. Collective; every rank measures its calls (:meth:`measure_calls`), and all are told the same."""
        found, ranks = StragglersStruct(float(threshold)), (RankTimesStruct * self.size)()
        call("epcclCommFindStragglers", self._pointer(), ctypes.byref(found), ranks, comm=self._handle)
        return found_by(found, list(ranks))

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        # After an error the others may never come to the end: they are told instead of waited for.
        if kind is None or (isinstance(value, SystemExit) and value.code in (None, 0)):
            self.destroy()
        else:
            self.abort()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._leave(patient=False)

    def _leave(self, patient: bool) -> bool:
        """Ends it, for who does not look after it any more. With a call under way, which the others may never come to, it is aborted; if
        `patient`, it stays, and this returns False."""
        handle = self._handle
        busy = bool(handle) and _library.code_of("epcclCommQuery", handle) == Result.IN_PROGRESS
        if busy and patient:
            return False
        self._handle = None
        # Calls of a group that is open keep it from being destroyed.
        if handle and (busy or _library.code_of("epcclCommDestroy", handle) == Result.INVALID_USAGE):
            _library.code_of("epcclCommAbort", handle)
        return True

    def __repr__(self) -> str:
        state = "destroyed"
        if self._handle:
            state = "in the making" if self.in_progress else f"rank {self.rank} of {self.size}"
        return f"<epccl.Communicator {state}>"

    def _pointer(self) -> ctypes.c_void_p:
        if not self._handle:
            raise InvalidUsage(Result.INVALID_USAGE, "the communicator was destroyed or aborted", "Communicator")
        return self._handle

    # ---- registration

    def register(self, buffer: Buffer) -> "Registration":
        """Announces a buffer that will be used often; undo with :meth:`Registration.deregister`."""
        return Registration(self, View("buffer", buffer, False, DataType.UINT8))

    def register_window(self, buffer: Buffer, *, symmetric: bool = False) -> "Window":
        """As :meth:`register`, for NCCL's windows: every rank calls it with a buffer of its own, and none waits. ``symmetric`` asks for
        the same offsets on all ranks, and changes nothing on host memory. Undo with :meth:`Window.deregister`."""
        return Window(self, View("buffer", buffer, False, DataType.UINT8), symmetric)
