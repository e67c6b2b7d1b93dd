"""Expert parallelism: dispatch and combine of tokens. The page docs/expert-parallel.md says how it goes together."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import sys
from types import TracebackType
from typing import Any, Collection, Sequence, SupportsIndex

from . import _library
from . import _structs as c
from ._library import call
from .buffers import Array, Buffer, View, is_tensor
from .communicator import Communicator
from .datatypes import DataType
from .dependents import Dependents
from .errors import EpcclError, InvalidUsage, Result
from .routings import Counters, Layout, Progress, Stats, Strategy
from .streams import Stream, pointer

#: Elements that share one FP8 scale.
SCALE_BLOCK = 128


def _milliseconds(timeout: float | None) -> int:
    """What the C API takes; 0: the communicator's."""
    if timeout is None or timeout <= 0:
        return 0
    if math.isnan(timeout):
        raise ValueError("timeout is not a number")
    return max(1, round(min(timeout * 1000, 2**32 - 1)))


def _default_experts(comm: Communicator, num_experts: int) -> list[int]:
    """This rank's, without a map: expert e is with rank e * size // num_experts."""
    first, end = (-(-rank * num_experts // comm.size) for rank in (comm.rank, comm.rank + 1))
    return list(range(first, end))


class EpGroup:
    """Knows the experts, on a communicator. Making one is collective, with the same arguments on every rank.

    It ends with :meth:`destroy`, with its ``with`` block, when nothing refers to it or to a handle of it any more, or with its
    communicator, and its handles with it."""

    def __init__(
        self,
        comm: Communicator,
        *,
        num_experts: int,
        max_send_tokens_per_rank: int,
        max_token_bytes: int,
        expert_to_rank: Collection[SupportsIndex] | None = None,
        strategy: Strategy = Strategy.AUTO,
        timeout: float | None = None,
    ) -> None:
        """num_experts: over all ranks.
        max_send_tokens_per_rank: most tokens (T) of one rank in one call.
        max_token_bytes: most bytes of one token; FP8: with its scales.
        expert_to_rank: the rank of each expert; None: contiguous blocks, as equal as possible.
        timeout: seconds a call waits for a silent rank, at most 49 days (infinity is that); None or <= 0: the communicator's.
        """
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._handles = Dependents()
        self._forgotten = False
        self.comm = comm
        self.num_experts = num_experts
        config = c.EpGroupConfig(
            num_experts=num_experts,
            max_send_tokens_per_rank=max_send_tokens_per_rank,
            max_token_bytes=max_token_bytes,
            strategy=strategy,
            timeout_ms=_milliseconds(timeout),
        )
        owners = None
        if expert_to_rank is not None:
            if len(expert_to_rank) != num_experts:
                raise ValueError(f"expert_to_rank has {len(expert_to_rank)} entries: {num_experts} are needed")
            owners = c.integers("expert_to_rank", expert_to_rank)
            config.expert_to_rank = c.number_array("expert_to_rank", owners, ctypes.c_int)
        call("epcclEpCreateGroup", ctypes.byref(self._handle), comm._pointer(), ctypes.addressof(config))
        comm._groups.add(self)
        # Only now: that there are not too many experts for a list is what the call has checked.
        #: Ids of this rank's experts, ascending: local expert i is ``local_experts[i]``.
        self.local_experts: list[int] = _default_experts(comm, num_experts)
        if owners is not None:
            self.local_experts = [expert for expert, rank in enumerate(owners) if rank == comm.rank]

    def handle(
        self,
        layout: Layout,
        *,
        alignment: int = 0,
        max_tokens_per_expert: int = 0,
        pad_to_capacity: bool = False,
        static_topk: int = 0,
        undefined_padding: bool = False,
    ) -> "EpHandle":
        """Makes an :class:`EpHandle` of this group. Collective, with the same arguments on every rank.

        alignment: EXPERT_MAJOR: each expert's rows begin at a multiple of it.
        max_tokens_per_expert: EXPERT_MAJOR: capacity, 0 for none; entries beyond it are dropped and reported.
        pad_to_capacity: every expert has ``max_tokens_per_expert`` rows.
        static_topk: not 0: static mode, for tables with this K.
        undefined_padding: rows that only pad hold anything after a dispatch, which then need not clear them.
        """
        return EpHandle(
            self,
            layout,
            alignment=alignment,
            max_tokens_per_expert=max_tokens_per_expert,
            pad_to_capacity=pad_to_capacity,
            static_topk=static_topk,
            undefined_padding=undefined_padding,
        )

    def destroy(self) -> None:
        """Frees the group; its handles must be destroyed first. A second call does nothing."""
        handle = self._handle
        if handle:
            call("epcclEpGroupDestroy", handle)
            self._handle = None

    def _pointer(self) -> ctypes.c_void_p:
        if not self._handle:
            raise InvalidUsage(Result.INVALID_USAGE, "the group was destroyed", "EpGroup")
        return self._handle

    def _leave(self) -> None:
        """Frees it with its handles, as far as no other thread is in a call of them."""
        self._handles.leave()
        self._let_go()

    def _let_go(self) -> None:
        if self._handle and _library.code_of("epcclEpGroupDestroy", self._handle) == Result.SUCCESS:
            self._handle = None

    def __enter__(self) -> "EpGroup":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None:
            self.destroy()
        else:
            self._let_go()  # what is wrong is said already; handles that are left end with the communicator

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._forgotten = True
            self._let_go()  # with handles that are forgotten together with it: when the last of them is gone


class _Tensors:
    """C tensors over the caller's buffers, alive as long as this is."""

    def __init__(self) -> None:
        self.alive: list[Any] = []
        self.call_is_started = False  # with send_only

    def make(
        self, what: str, value: Buffer | None, writable: bool, datatype: DataType | None = None
    ) -> ctypes._Pointer[c.EpTensor] | None:
        """A pointer for a struct's field; NULL for None."""
        if value is None:
            return None
        view = View(what, value, writable, datatype)
        elements = math.prod(view.shape)
        if elements * view.datatype.itemsize != view.nbytes:
            raise ValueError(
                f"{what}: its {elements} elements have {view.nbytes} bytes: as {view.datatype.name.lower()} "
                f"they would have {elements * view.datatype.itemsize}"
            )
        sizes = (ctypes.c_size_t * len(view.shape))(*view.shape)
        tensor = c.EpTensor(ndim=len(view.shape), datatype=view.datatype, data=view.address, sizes=sizes)
        self.alive += [view, sizes, tensor]
        return ctypes.pointer(tensor)


class EpHandle:
    """Knows one routing. Collective calls; any number of dispatches and combines for each :meth:`update`."""

    def __init__(
        self,
        group: EpGroup,
        layout: Layout,
        *,
        alignment: int = 0,
        max_tokens_per_expert: int = 0,
        pad_to_capacity: bool = False,
        static_topk: int = 0,
        undefined_padding: bool = False,
    ) -> None:
        """As :meth:`EpGroup.handle`, which says what the arguments are."""
        self._handle: ctypes.c_void_p | None = ctypes.c_void_p()
        self._counters: Counters | None = None
        self._ready = False
        self._tokens = 0
        self._started: set[_Tensors] = set()  # of calls with send_only; also of one that another thread is about to start
        self.group, self.layout = group, Layout(layout)
        group._handles.add(self)
        config = c.EpHandleConfig(
            dispatch_output_per_expert_alignment=alignment,
            max_tokens_per_expert=max_tokens_per_expert,
            pad_to_capacity=int(pad_to_capacity),
            static_topk=static_topk,
            undefined_padding=int(undefined_padding),
        )
        call(
            "epcclEpCreateHandle",
            ctypes.byref(self._handle),
            group._pointer(),
            layout,
            None,
            None,
            ctypes.addressof(config),
            None,
        )

    def update(self, topk_idx: Buffer, *, stream: Stream | None = None) -> Counters:
        """Gives the handle a new routing: ``topk_idx`` [T,K], int32 or int64, expert ids or -1 for unused. Returns the counters,
        which with a stream are valid once it was synchronized."""
        tensors = _Tensors()
        table = tensors.make("topk_idx", topk_idx, False)
        shape = tensors.alive[0].shape
        experts, ranks = len(self.group.local_experts), self.group.comm.size
        if is_tensor(topk_idx):
            arrays: Any = sys.modules["torch"]
            zeros = topk_idx.new_zeros  # where the table is: PyTorch's default device may be another one
        else:
            import numpy

            arrays, zeros = numpy, numpy.zeros
        counters = Counters(
            expert_counters=zeros(experts, dtype=arrays.int64),
            expert_offsets=zeros(experts, dtype=arrays.int64),
            src_rank_counters=zeros(ranks, dtype=arrays.int64),
            recv_total_counter=zeros(1, dtype=arrays.int64),
            dropped_counters=zeros(experts, dtype=arrays.int64),
            dropped=zeros(shape, dtype=arrays.uint8),
        )
        info = c.EpLayoutInfo(
            **{field.name: tensors.make(field.name, getattr(counters, field.name), True) for field in dataclasses.fields(counters)}
        )
        self._issue("epcclEpUpdateHandle", stream, [tensors, info], table, ctypes.addressof(info))
        self._counters, self._ready, self._tokens = counters, stream is None, shape[0]
        return counters

    def dispatch(
        self,
        tokens: Buffer,
        *,
        topk_weights: Buffer | None = None,
        scales: Buffer | None = None,
        out: Buffer | None = None,
        out_weights: Buffer | None = None,
        out_topk_idx: Buffer | None = None,
        out_scales: Buffer | None = None,
        weighted: bool = False,
        send_only: bool = False,
        datatype: DataType | None = None,
        out_datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """Brings every token to the ranks that own its experts. Returns ``out``.

        tokens: [T,H] float32, bfloat16, float16 or float8e4m3 (``datatype`` says which where the array cannot).
        topk_weights: [T,K] float32. scales: [T, H/128 rounded up] float32, with float8e4m3.
        out: [N,H] or more rows; None: a new array like ``tokens`` with the N rows of the last :meth:`update`.
        out_weights: FLAT, RANK_MAJOR: [N,K]; EXPERT_MAJOR: [N]; float32.
        out_topk_idx: [N,K] int32 or int64: local expert ids, -1 where the expert is elsewhere.
        out_scales: [N, H/128 rounded up] float32, with float8e4m3 rows (also quantised on the way out).
        weighted: EXPERT_MAJOR: each row is multiplied with its weight.
        send_only: return once started; see :meth:`complete`. Not with a stream.
        """
        if out is None:
            out = self._new_like(tokens, self._rows())
            if out_datatype is not None and DataType(out_datatype).itemsize != out.itemsize:
                raise ValueError(f"out is needed: rows of {DataType(out_datatype).name.lower()} do not go into an array like tokens")
        tensors = _Tensors()
        inputs = c.EpDispatchInputs(
            tokens=tensors.make("tokens", tokens, False, datatype),
            topk_weights=tensors.make("topk_weights", topk_weights, False),
            scales=tensors.make("scales", scales, False),
        )
        outputs = c.EpDispatchOutputs(
            tokens=tensors.make("out", out, True, out_datatype if out_datatype is not None else datatype),
            topk_weights=tensors.make("out_weights", out_weights, True),
            topk_idx=tensors.make("out_topk_idx", out_topk_idx, True),
            scales=tensors.make("out_scales", out_scales, True),
        )
        self._run("epcclEpDispatch", tensors, inputs, outputs, weighted, send_only, stream)
        return out

    def combine(
        self,
        rows: Buffer,
        *,
        topk_weights: Buffer | None = None,
        out: Buffer | None = None,
        out_weights: Buffer | None = None,
        weighted: bool = False,
        send_only: bool = False,
        datatype: DataType | None = None,
        stream: Stream | None = None,
    ) -> Array:
        """Brings the rows of a dispatch back to the tokens' ranks and adds them up. Returns ``out``, [T,H] in the order of topk_idx;
        None: a new array like ``rows``.

        topk_weights, out_weights: gradients of the weights, as dispatch gave them, to go home ([T,K] float32).
        weighted: EXPERT_MAJOR: each row counts with the weight that the handle's last dispatch brought.
        """
        out = self._new_like(rows, self._tokens) if out is None else out
        tensors = _Tensors()
        inputs = c.EpCombineInputs(
            tokens=tensors.make("rows", rows, False, datatype),
            topk_weights=tensors.make("topk_weights", topk_weights, False),
        )
        outputs = c.EpCombineOutputs(
            tokens=tensors.make("out", out, True, datatype),
            topk_weights=tensors.make("out_weights", out_weights, True),
        )
        self._run("epcclEpCombine", tensors, inputs, outputs, weighted, send_only, stream)
        return out

    def complete(self, stage: int = 2) -> None:
        """Waits until all started calls are past ``stage``: 1, the network; 2, over: all buffers are the caller's again."""
        # Another thread may start more meanwhile, which this does not wait for.
        waited_for = [tensors for tensors in self._started.copy() if tensors.call_is_started]
        try:
            self._call("epcclEpCompleteStage", self._pointer(), stage)
        except EpcclError as failure:
            # One of these may mean that nothing was waited for; then destroy() waits.
            if failure.code in (Result.INVALID_ARGUMENT, Result.INVALID_USAGE):
                raise
            self._release_started(stage, waited_for)
            raise
        self._release_started(stage, waited_for)

    def _release_started(self, stage: int, tensors: list[_Tensors]) -> None:
        if stage == 2:
            self._started.difference_update(tensors)

    def progress(self) -> Progress:
        """How far the started calls are. Never blocks; any thread."""
        struct = c.EpProgressStruct()
        self._call("epcclEpGetProgress", self._pointer(), ctypes.addressof(struct))
        return Progress(**{field.name: getattr(struct, field.name) for field in dataclasses.fields(Progress)})

    def stats(self) -> Stats:
        """Counts of the routing and the last calls. No call may be in progress."""
        struct = c.EpStatsStruct()
        self._call("epcclEpGetStats", self._pointer(), ctypes.addressof(struct))
        values = {field.name: getattr(struct, field.name) for field in dataclasses.fields(Stats)}
        return Stats(**{**values, "strategy": Strategy(values["strategy"])})

    def make_wait(self, stream: Stream, stage: int = 2) -> None:
        """What is given to ``stream`` from now on waits until all calls started before are past ``stage``."""
        self._call("epcclEpStreamWaitStage", pointer(stream), self._pointer(), stage)

    def destroy(self) -> None:
        """Waits until the calls that it has started with ``send_only`` are over, and frees the handle; calls in a stream end as they
        would have. A second call does nothing."""
        handle = self._handle
        if handle:
            call("epcclEpHandleDestroy", handle)
            self._handle = None
            self._started.clear()

    def __enter__(self) -> "EpHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._leave()  # calls that were started use their buffers until this returns
            if self.group._forgotten:
                self.group._let_go()

    def _leave(self) -> None:
        handle, self._handle = self._handle, None
        if handle:
            _library.code_of("epcclEpHandleDestroy", handle)
            self._started.clear()

    # ---- inside

    def _pointer(self) -> ctypes.c_void_p:
        if not self._handle:
            raise InvalidUsage(Result.INVALID_USAGE, "the handle was destroyed", "EpHandle")
        return self._handle

    def _rows(self) -> int:
        if self._counters is None:
            raise InvalidUsage(Result.INVALID_USAGE, "no routing yet: call update() first", "EpHandle")
        if not self._ready:
            raise ValueError("out is needed: the update ran on a stream, so the number of rows is not known here")
        return self._counters.rows

    @staticmethod
    def _new_like(like: Buffer, rows: int) -> Array:
        if is_tensor(like):
            return like.new_zeros((rows, *like.shape[1:]))
        import numpy

        array = numpy.asarray(like)
        return numpy.zeros((rows, *array.shape[1:]), array.dtype)

    def _run(
        self,
        name: str,
        tensors: _Tensors,
        inputs: ctypes.Structure,
        outputs: ctypes.Structure,
        weighted: bool,
        send_only: bool,
        stream: Stream | None,
    ) -> None:
        config = c.EpDispatchConfig(send_only=int(send_only), weighted=int(weighted))
        if send_only:
            self._started.add(tensors)  # first: the call uses them from its start, whatever is raised here when it returns
        try:
            self._issue(
                name, stream, [tensors, inputs, outputs], ctypes.addressof(inputs), ctypes.addressof(outputs), ctypes.byref(config)
            )
        except EpcclError as failure:
            if failure.code in (Result.INVALID_ARGUMENT, Result.INVALID_USAGE):  # it was not started
                self._started.discard(tensors)
            raise
        finally:
            tensors.call_is_started = True

    def _issue(self, name: str, stream: Stream | None, alive: Sequence[object], *arguments: Any) -> None:
        self._call(name, self._pointer(), *arguments, pointer(stream))
        if stream is not None:
            stream._keep(*alive, self)  # with the communicator, which would be aborted if nothing referred to it

    def _call(self, name: str, *arguments: Any) -> None:
        # Where abort() in another thread frees the handle meanwhile, the library waits for what was started when this returns.
        started = self._started.copy()
        try:
            call(name, *arguments, comm=self.group.comm._handle)
        finally:
            del started
