"""Collectives, sends and receives."""

from __future__ import annotations

import ctypes
from typing import Any, Collection, Iterable, Sequence, SupportsFloat, SupportsIndex

from ._library import call
from ._structs import integers, number_array
from .buffers import Buffer, View, same_datatype, views
from .datatypes import DataType, RedOp, op_of_truths
from .groups import keep_in_use
from .scalars import scalar_of
from .streams import Stream, pointer


def _size_array(name: str, given: Collection[SupportsIndex], ranks: int) -> ctypes.Array[Any]:
    values = integers(name, given)
    if len(values) != ranks:
        raise ValueError(f"{name} has {len(values)} entries: {ranks} are needed, one a rank")
    for at, value in enumerate(values):
        if value < 0:
            raise ValueError(f"{name}[{at}] is {value}: negative")
    return number_array(name, values, ctypes.c_size_t)


def _running(counts: Iterable[int]) -> list[int]:
    at = 0
    out: list[int] = []
    for count in counts:
        out.append(at)
        at += count
    return out


def _op_of(op: int, source: View, target: View) -> int:
    if source.truths != target.truths:
        raise ValueError("of send and recv one holds truth values (bool), the other does not")
    return op_of_truths(op) if source.truths else op


class Exchanges:
    """The calls of a :class:`Communicator` that move data."""

    @property
    def size(self) -> int:
        raise NotImplementedError

    @property
    def rank(self) -> int:
        raise NotImplementedError

    def _pointer(self) -> ctypes.c_void_p:
        raise NotImplementedError

    def _issue(self, name: str, views: Sequence[View], stream: Stream | None, *arguments: Any) -> None:
        handle = self._pointer()
        call(name, *arguments, handle, pointer(stream), comm=handle)
        keep_in_use([*views, self], stream)

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
        """Block d of ``send`` goes to rank d, block s of ``recv`` comes from rank s. Both hold ``size`` blocks of equal length.
        They may be the same buffer, or overlap: then the input is copied first."""
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
        sendcounts: Collection[SupportsIndex],
        recv: Buffer,
        recvcounts: Collection[SupportsIndex],
        *,
        sdispls: Collection[SupportsIndex] | None = None,
        rdispls: Collection[SupportsIndex] | None = None,
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
            sizes = _size_array(f"{name}counts", counts, self.size)
            places = _size_array(f"{name[0]}displs", _running(sizes) if displs is None else displs, self.size)
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
        self._blocks("epcclReduceScatter", source, target, source, stream, _op_of(op, source, target))

    def allreduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: int = RedOp.SUM,
        *,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> None:
        """``recv`` is the element-wise reduction of all ranks' ``send``; without ``recv``, in place. Of truth values (bool) a sum is
        "any", a product "all"."""
        source = View("send", send, recv is None, datatype)
        target = source if recv is None else View("recv", recv, True, datatype)
        self._same("epcclAllReduce", source, target, stream, _op_of(op, source, target))

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
        self._same("epcclReduce", source, target, stream, _op_of(op, source, target), root)

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
        self._rooted("epcclGather", root, "recv", target, source, stream)

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
        self._rooted("epcclScatter", root, "send", source, target, stream)

    def pre_mul_sum(self, factor: SupportsFloat, datatype: DataType) -> int:
        """A reduction that adds up each rank's elements times this rank's ``factor``; for calls of this communicator and datatype,
        until :meth:`destroy_op`. ``factor`` becomes a number of ``datatype``: an integer datatype has to hold it; others take the nearest,
        of two the even one, and of float8 the largest where it is beyond that."""
        scalar = scalar_of("factor", factor, datatype)
        op = ctypes.c_int()
        # 1: the factor is in host memory, and is read now.
        call("epcclRedOpCreatePreMulSum", ctypes.byref(op), scalar, datatype, 1, self._pointer())
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

    def _rooted(self, name: str, root: int, whose: str, whole: View | None, part: View, stream: Stream | None) -> None:
        """`whole`, in the argument `whose`, is the root's."""
        other = "send" if whose == "recv" else "recv"
        if self.rank == root:
            if whole is None:
                raise ValueError(f"{whose} is needed on the root, rank {root}")
            same_datatype((whose, whole), (other, part))
            if whole.count != part.count * self.size:
                raise ValueError(f"{whose} has {whole.count} elements: {self.size} times {part.count} are needed")
        place = None if whole is None else whole.address
        addresses = (part.address, place) if whose == "recv" else (place, part.address)
        held = [part] if whole is None else [part, whole]
        self._issue(name, held, stream, *addresses, part.count, part.datatype, root)
