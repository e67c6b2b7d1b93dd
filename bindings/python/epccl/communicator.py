"""Communicators, collectives, sends and receives."""

from __future__ import annotations

import ctypes
import functools
import time
from typing import TYPE_CHECKING, Sequence

from . import _library
from ._library import begin, call
from ._structs import CallTimesStruct, StatisticsStruct, UniqueIdStruct, id_struct
from .buffers import Buffer, View, same_datatype, views
from .config import Settings, config_of, config_of_child
from .datatypes import DataType, RedOp
from .errors import InvalidUsage, Result
from .groups import keep_while_open
from .registrations import Registration, Window
from .streams import Stream, pointer

if TYPE_CHECKING:
    from typing_extensions import Unpack


def get_unique_id() -> bytes:
    """Makes an id and opens the rendezvous it names in this process. Call it on one rank and send the bytes to all by any means;
    they admit to the communicator, so keep them private."""
    made = UniqueIdStruct()
    call("epcclGetUniqueId", ctypes.byref(made))
    return bytes(made)


def _size_array(name: str, values: Sequence[int], ranks: int):
    values = [int(value) for value in values]
    if len(values) != ranks:
        raise ValueError(f"{name} has {len(values)} entries: {ranks} are needed, one a rank")
    for at, value in enumerate(values):
        if value < 0:
            raise ValueError(f"{name}[{at}] is {value}: negative")
    return (ctypes.c_size_t * ranks)(*values)


def _running(counts: Sequence[int]) -> list[int]:
    at, out = 0, []
    for count in counts:
        out.append(at)
        at += int(count)
    return out


class Communicator:
    """One rank's end of a communicator. Calls are ordered as issued, and every rank issues the same collectives in the same order.

    Buffers are anything with the buffer protocol, C-contiguous, NumPy arrays above all; the datatype follows from them, or is
    said with ``datatype=`` (``DataType.BFLOAT16`` over a uint16 array, for example). With ``stream=None`` a call returns when the
    result is in place; with a :class:`Stream` it returns at once. Calls on one communicator must not overlap, except
    :meth:`abort` and :meth:`async_error`."""

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
        self._learn()

    @classmethod
    def from_launcher(cls, **settings: Unpack[Settings]) -> "Communicator":
        """Joins the communicator of all processes that epccl-run, torchrun, Slurm, Open MPI, MPICH or PMI(x) started; without
        a launcher this process is the only rank."""
        made = cls.__new__(cls)
        made._handle = ctypes.c_void_p()
        begin("epcclCommInitLauncher", ctypes.byref(made._handle), config_of(settings))
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
        made._learn()
        return made

    @classmethod
    def init_all(cls, nranks: int, devices: Sequence[int] | None = None) -> "list[Communicator]":
        """All ``nranks`` ranks of a communicator in this process, in rank order. One thread that is several ranks puts their
        collectives (and their :meth:`finalize`) into one ``with group():``. devices: what :attr:`device` tells, one a rank; None: 0, 1,
        ..."""
        if devices is not None and len(devices) != nranks:
            raise ValueError(f"devices has {len(devices)} entries: {nranks} are needed, one a rank")
        handles = (ctypes.c_void_p * max(nranks, 1))()
        numbers = None if devices is None else (ctypes.c_int * nranks)(*devices)
        call("epcclCommInitAll", handles, nranks, numbers)
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
        return self._of(handle) if handle else None

    def shrink(
        self,
        exclude: Sequence[int],
        *,
        abort: bool = False,
        **settings: Unpack[Settings],
    ) -> "Communicator":
        """Makes a communicator of the ranks that are not in ``exclude``, in their old order; exactly those call it, and the others
        may be dead. ``abort``: first ends all work of this one with an error; needed where it has failed already. The rest is as for
        :meth:`split`."""
        ranks = (ctypes.c_int * len(exclude))(*exclude)
        handle = ctypes.c_void_p()
        config = config_of_child(settings)
        begin("epcclCommShrink", self._pointer(), ranks, len(exclude), ctypes.byref(handle), config, int(abort), comm=self._handle)
        return self._of(handle)

    @classmethod
    def _of(cls, handle) -> "Communicator":
        made = cls.__new__(cls)
        made._handle = handle
        made._learn()
        return made

    def _learn(self) -> None:
        """What is kept beyond the end of the communicator, if it is made already."""
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

    def destroy(self) -> None:
        """Finalizes and frees. Returns within the timeout also when peers are gone. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            call("epcclCommDestroy", handle)

    def abort(self) -> None:
        """Ends all work with an error, here and on the other ranks, and frees. Any thread may call it while another one blocks
        in a collective; that call then raises :class:`RemoteError`."""
        handle, self._handle = self._handle, None
        if handle:
            call("epcclCommAbort", handle)

    def revoke(self) -> None:
        """As :meth:`abort`, but the communicator stays, to be split or shrunk, and destroyed."""
        begin("epcclCommRevoke", self._pointer(), 0, comm=self._handle)

    def async_error(self) -> Exception | None:
        """The first error of background or remote work, None while there is none. Never blocks; any thread."""
        code = self._async_code()
        if code in (Result.SUCCESS, Result.IN_PROGRESS):
            return None
        return _library.failure("asynchronous", code, self._pointer())

    def _async_code(self) -> int:
        code = ctypes.c_int()
        call("epcclCommGetAsyncError", self._pointer(), ctypes.byref(code))
        return code.value

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
        """Whether calls that begin from now on are measured, on this rank; for :meth:`call_times`."""
        call("epcclCommMeasureCalls", self._pointer(), int(on), comm=self._handle)

    def call_times(self) -> dict[str, float]:
        """Where the time of the measured calls went since this was asked last: how many `calls`, and seconds in `total`, of these in
        `kernel`, `copy`, `signal` (waiting for other ranks) and `host` (profile.h). Waits until the calls issued before are over."""
        times = CallTimesStruct()
        call("epcclCommGetCallTimes", self._pointer(), ctypes.byref(times), comm=self._handle)
        return {name: getattr(times, name) for name in ("calls", *CallTimesStruct.SECONDS)}

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind, value, traceback) -> None:
        # After an error the others may never come to the end: they are told instead of waited for.
        if kind is None:
            self.destroy()
        else:
            self.abort()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            _library.code_of("epcclCommAbort", handle)

    def __repr__(self) -> str:
        state = "destroyed"
        if self._handle:
            state = "in the making" if self.in_progress else f"rank {self.rank} of {self.size}"
        return f"<epccl.Communicator {state}>"

    def _pointer(self):
        if not self._handle:
            raise InvalidUsage(Result.INVALID_USAGE, "the communicator was destroyed or aborted", "Communicator")
        return self._handle

    def _issue(self, name: str, views: Sequence[View], stream: Stream | None, *arguments) -> None:
        handle = self._pointer()
        call(name, *arguments, handle, pointer(stream), comm=handle)
        # The library has the buffers until the work is complete.
        if stream is not None:
            stream._keep(*views)
        else:
            keep_while_open(views)

    # ---- sends and receives

    def send(self, buffer: Buffer, peer: int, *, datatype: DataType | None = None, stream: Stream | None = None) -> None:
        """Sends the whole buffer to ``peer``, matched in order with its :meth:`recv` of the same count and datatype."""
        view = View("buffer", buffer, False, datatype)
        self._issue("epcclSend", [view], stream, view.address, view.count, view.datatype, peer)

    def recv(self, buffer: Buffer, peer: int, *, datatype: DataType | None = None, stream: Stream | None = None) -> None:
        """Fills the whole buffer from ``peer``."""
        view = View("buffer", buffer, True, datatype)
        self._issue("epcclRecv", [view], stream, view.address, view.count, view.datatype, peer)

    # ---- collectives

    def alltoall(
        self, send: Buffer, recv: Buffer, *, datatype: DataType | None = None, stream: Stream | None = None
    ) -> None:
        """Block d of ``send`` goes to rank d, block s of ``recv`` comes from rank s. Both hold ``size`` blocks of equal length and
        must not overlap."""
        source, target = View("send", send, False, datatype), View("recv", recv, True, datatype)
        kind = same_datatype(("send", source), ("recv", target))
        if source.count != target.count:
            raise ValueError(f"send has {source.count} elements, recv has {target.count}")
        if source.count % self.size:
            raise ValueError(f"send has {source.count} elements: not a multiple of {self.size} ranks")
        self._issue(
            "epcclAlltoall", [source, target], stream, source.address, target.address, source.count // self.size, kind
        )

    def alltoallv(
        self,
        send: Buffer,
        sendcounts: Sequence[int],
        recv: Buffer,
        recvcounts: Sequence[int],
        *,
        sdispls: Sequence[int] | None = None,
        rdispls: Sequence[int] | None = None,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """As :meth:`alltoall` with counts and displacements of each block, in elements. Without displacements the blocks lie one
        after the other. ``sendcounts[d]`` here must equal ``recvcounts[this rank]`` on rank d."""
        source, target = View("send", send, False, datatype), View("recv", recv, True, datatype)
        kind = same_datatype(("send", source), ("recv", target))
        arrays = []
        for name, view, counts, displs in (
            ("send", source, sendcounts, sdispls),
            ("recv", target, recvcounts, rdispls),
        ):
            displs = _running(counts) if displs is None else displs
            sizes = _size_array(f"{name}counts", counts, self.size)
            places = _size_array(f"{name[0]}displs", displs, self.size)
            end = max((places[i] + sizes[i] for i in range(self.size) if sizes[i]), default=0)
            if end > view.count:
                raise ValueError(f"{name} has {view.count} elements: its counts and displacements reach to {end}")
            arrays.append((sizes, places))
        (scounts, splaces), (rcounts, rplaces) = arrays
        self._issue(
            "epcclAlltoallv",
            [source, target],
            stream,
            source.address,
            scounts,
            splaces,
            target.address,
            rcounts,
            rplaces,
            kind,
        )

    def allgather(
        self, send: Buffer, recv: Buffer, *, datatype: DataType | None = None, stream: Stream | None = None
    ) -> None:
        """Block s of ``recv`` comes from rank s's ``send``. In place where ``send`` is this rank's block of ``recv``."""
        source, target = View("send", send, False, datatype), View("recv", recv, True, datatype)
        self._blocks("epcclAllGather", source, target, target, stream)

    def reduce_scatter(
        self,
        send: Buffer,
        recv: Buffer,
        op: int = RedOp.SUM,
        *,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """``recv`` is block ``rank`` of the element-wise reduction of all ranks' ``send``. In place where ``recv`` is this rank's
        block of ``send``."""
        source, target = View("send", send, False, datatype), View("recv", recv, True, datatype)
        self._blocks("epcclReduceScatter", source, target, source, stream, op)

    def allreduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: int = RedOp.SUM,
        *,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """``recv`` is the element-wise reduction of all ranks' ``send``; without ``recv``, in place."""
        source = View("send", send, recv is None, datatype)
        target = source if recv is None else View("recv", recv, True, datatype)
        self._same("epcclAllReduce", source, target, stream, op)

    def broadcast(
        self, buffer: Buffer, root: int = 0, *, datatype: DataType | None = None, stream: Stream | None = None
    ) -> None:
        """``buffer`` becomes the root's on every rank."""
        view = View("buffer", buffer, self.rank != root, datatype)
        self._same("epcclBroadcast", view, view, stream, root)

    def reduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: int = RedOp.SUM,
        root: int = 0,
        *,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """The root's ``recv`` is the element-wise reduction of all ranks' ``send``. Without ``recv`` in place at the root; the others
        need none."""
        source = View("send", send, recv is None and self.rank == root, datatype)
        target = source if recv is None else View("recv", recv, True, datatype)
        self._same("epcclReduce", source, target, stream, op, root)

    def gather(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        root: int = 0,
        *,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Block s of the root's ``recv`` comes from rank s's ``send``; the others need no ``recv``."""
        source, target = View("send", send, False, datatype), views("recv", recv, True, datatype)
        self._rooted("epcclGather", root, "recv", source, target, source, stream)

    def scatter(
        self,
        send: Buffer | None,
        recv: Buffer,
        root: int = 0,
        *,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """``recv`` comes from block ``rank`` of the root's ``send``; the others' ``send`` may be None."""
        source, target = views("send", send, False, datatype), View("recv", recv, True, datatype)
        self._rooted("epcclScatter", root, "send", source, target, target, stream)

    def pre_mul_sum(self, factor: float, datatype: DataType) -> int:
        """A reduction that adds up each rank's elements times this rank's ``factor``; for calls of this communicator and datatype,
        until :meth:`destroy_op`."""
        import numpy

        names = {DataType.FLOAT16: "float16", DataType.FLOAT32: "float32", DataType.FLOAT64: "float64"}
        if datatype not in names and datatype > DataType.UINT64:
            raise ValueError(f"factor of {datatype.name.lower()} is not supported from Python")
        scalar = numpy.array([factor], names.get(datatype, datatype.name.lower()))
        op = ctypes.c_int()
        # 1: the factor is in host memory, and is read now.
        call("epcclRedOpCreatePreMulSum", ctypes.byref(op), scalar.ctypes.data, datatype, 1, self._pointer())
        return op.value

    def destroy_op(self, op: int) -> None:
        """Forgets an operation of :meth:`pre_mul_sum`."""
        call("epcclRedOpDestroy", op, self._pointer())

    def _same(self, name: str, source: View, target: View, stream: Stream | None, *arguments: int) -> None:
        kind = same_datatype(("send", source), ("recv", target))
        if source.count != target.count:
            raise ValueError(f"send has {source.count} elements, recv has {target.count}")
        self._issue(name, [source, target], stream, source.address, target.address, source.count, kind, *arguments)

    def _blocks(self, name: str, source: View, target: View, whole: View, stream: Stream | None, *arguments: int) -> None:
        kind = same_datatype(("send", source), ("recv", target))
        part = source if whole is target else target
        if whole.count != part.count * self.size:
            which, other = ("recv", "send") if whole is target else ("send", "recv")
            raise ValueError(f"{which} has {whole.count} elements: {self.size} times {other}'s {part.count} are needed")
        self._issue(name, [source, target], stream, source.address, target.address, part.count, kind, *arguments)

    def _rooted(
        self, name: str, root: int, whose: str, source: View | None, target: View | None, part: View, stream: Stream | None
    ) -> None:
        whole = target if whose == "recv" else source
        if self.rank == root:
            if whole is None:
                raise ValueError(f"{whose} is needed on the root, rank {root}")
            same_datatype(("send", source), ("recv", target))
            if whole.count != part.count * self.size:
                raise ValueError(f"{whose} has {whole.count} elements: {self.size} times {part.count} are needed")
        held = [view for view in (source, target) if view is not None]
        addresses = [view.address if view is not None else None for view in (source, target)]
        self._issue(name, held, stream, *addresses, part.count, part.datatype, root)

    # ---- registration

    def register(self, buffer: Buffer) -> "Registration":
        """Announces a buffer that will be used often; undo with :meth:`Registration.deregister`."""
        return Registration(self, View("buffer", buffer, False, DataType.UINT8))

    def register_window(self, buffer: Buffer, *, symmetric: bool = False) -> "Window":
        """As :meth:`register`, for NCCL's windows: every rank calls it with a buffer of its own, and none waits. ``symmetric`` asks for
        the same offsets on all ranks, and changes nothing on host memory. Undo with :meth:`Window.deregister`."""
        return Window(self, View("buffer", buffer, False, DataType.UINT8), symmetric)
