"""The C structs of epccl.h, ep.h, placement.h, profile.h and stragglers.h, as the headers' initializers set them up."""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any, Collection, SupportsIndex

if TYPE_CHECKING:
    Kind = type[ctypes._SimpleCData[Any]]  # C's type of a number

_VERSION_CODE = 100  # 0.1.0, the header these structs were written from
_CONFIG_MAGIC = 0xEC1CAFE
_CONFIG_UNDEF_INT = -(2**31)
_SIM_INFO_MAGIC = 0xEC151AFE
_STATISTICS_MAGIC = 0x57A7150C
_CALL_TIMES_MAGIC = 0xCA117135
_STRAGGLERS_MAGIC = 0x57A66135
_EP_MAGIC = 0xEC1E9
_EP_API_VERSION = 1

_uint, _size, _u64, _ull = ctypes.c_uint, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_ulonglong


_UNIQUE_ID_BYTES = 128


class UniqueIdStruct(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * _UNIQUE_ID_BYTES)]


def id_struct(what: str, given: bytes) -> UniqueIdStruct:
    if len(given) != _UNIQUE_ID_BYTES:
        raise ValueError(f"{what} has {len(given)} bytes: {_UNIQUE_ID_BYTES} are needed, from get_unique_id()")
    return UniqueIdStruct.from_buffer_copy(given)


_BITS_OF = {ctypes.c_int: -31, _uint: 32, _size: 64, _u64: 64}  # negative: signed


def integer(name: str, value: Any) -> int:
    """All that has __index__ is taken, NumPy's integers among them; TypeError where something else is given."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: not an integer") from None


def integers(name: str, values: Collection[SupportsIndex]) -> list[int]:
    """As integer(), of each."""
    return [integer(f"{name}[{at}]", value) for at, value in enumerate(values)]


def check_range(name: str, value: Any, kind: Kind) -> None:
    """ValueError where a C number of this kind does not have the value: ctypes would take the value's low bits. TypeError as of
    integer()."""
    bits = _BITS_OF.get(kind)
    if bits is None:
        return
    value = integer(name, value)
    lowest, limit = (-(2**-bits), 2**-bits) if bits < 0 else (0, 2**bits)
    if not lowest <= value < limit:
        raise ValueError(f"{name} is {value}: not in {lowest}..{limit - 1}")


def number_array(name: str, values: Collection[SupportsIndex], kind: Kind) -> ctypes.Array[Any]:
    """C's array of them. ValueError: one is none of this kind."""
    for at, value in enumerate(values):
        check_range(f"{name}[{at}]", value, kind)
    return (kind * len(values))(*values)


class Config(ctypes.Structure):
    _fields_ = [
        ("size", _size),
        ("magic", _uint),
        ("version", _uint),
        ("algorithm", ctypes.c_char_p),
        ("timeout", ctypes.c_double),
        ("commName", ctypes.c_char_p),
        ("blocking", ctypes.c_int),
        ("splitShare", ctypes.c_int),
        ("shrinkShare", ctypes.c_int),
        ("netName", ctypes.c_char_p),
        ("maxCTAs", ctypes.c_int),
        ("CTAPolicy", ctypes.c_int),
        ("copyEngine", ctypes.c_char_p),
        ("firstCalls", ctypes.c_int),
        ("reserved", ctypes.c_int),
    ]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(Config), _CONFIG_MAGIC, _VERSION_CODE)
        self.blocking = self.splitShare = self.shrinkShare = _CONFIG_UNDEF_INT
        self.maxCTAs = self.CTAPolicy = self.firstCalls = self.reserved = _CONFIG_UNDEF_INT


class SimInfo(ctypes.Structure):
    _fields_ = [("size", _size), ("magic", _uint), ("version", _uint), ("estimatedTime", ctypes.c_float)]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(SimInfo), _SIM_INFO_MAGIC, _VERSION_CODE, -1.0)


class StatisticsStruct(ctypes.Structure):
    COUNTERS = (
        "connections",
        "messagesSent",
        "bytesSent",
        "messagesReceived",
        "bytesReceived",
        "sendRequests",
        "writeRequests",
        "signalRequests",
        "completionsRequested",
        "sendCompletions",
        "receiveCompletions",
        "registrations",
        "railsLost",
        "requestsMoved",
        "messagesCarried",
    )
    _fields_ = [("size", _size), ("magic", _uint), ("version", _uint)] + [(name, _ull) for name in COUNTERS]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(StatisticsStruct), _STATISTICS_MAGIC, _VERSION_CODE)


class CallTimesStruct(ctypes.Structure):
    SECONDS = ("total", "kernel", "copy", "signal", "host")
    _fields_ = [("size", _size), ("magic", _uint), ("version", _uint), ("calls", _ull)] + [(name, ctypes.c_double) for name in SECONDS]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(CallTimesStruct), _CALL_TIMES_MAGIC, _VERSION_CODE)


class RankTimesStruct(ctypes.Structure):
    _fields_ = [
        ("late", ctypes.c_double),
        ("between", ctypes.c_double),
        ("own", ctypes.c_double),
        ("waited", ctypes.c_double),
        ("lastCalls", _ull),
        ("lateBy", ctypes.c_int),
    ]


class StragglersStruct(ctypes.Structure):
    _fields_ = [
        ("size", _size),
        ("magic", _uint),
        ("version", _uint),
        ("threshold", ctypes.c_double),
        ("calls", _ull),
        ("seconds", ctypes.c_double),
        ("lost", ctypes.c_double),
        ("late", ctypes.c_int),
    ]

    def __init__(self, threshold: float = 0.05) -> None:
        super().__init__(ctypes.sizeof(StragglersStruct), _STRAGGLERS_MAGIC, _VERSION_CODE, threshold)


class _Ep(ctypes.Structure):
    """Sets size and magic, and version where there is one."""

    def __init__(self, **fields: Any) -> None:
        kinds: dict[str, Any] = {field[0]: field[1] for field in self._fields_}
        for name, value in fields.items():
            check_range(name, value, kinds[name])
        super().__init__(**fields)
        self.size, self.magic = ctypes.sizeof(self), _EP_MAGIC
        if hasattr(self, "version"):
            self.version = _EP_API_VERSION


_HEAD: list[tuple[str, Any]] = [("size", _size), ("magic", _uint)]


class EpTensor(_Ep):
    _fields_ = _HEAD + [
        ("ndim", _uint),
        ("datatype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(_size)),
    ]


_TENSOR = ctypes.POINTER(EpTensor)


class EpGroupConfig(_Ep):
    _fields_ = _HEAD + [
        ("version", _uint),
        ("num_experts", _uint),
        ("expert_to_rank", ctypes.POINTER(ctypes.c_int)),
        ("max_send_tokens_per_rank", _uint),
        ("max_token_bytes", _size),
        ("strategy", ctypes.c_int),
        ("timeout_ms", _uint),
    ]


class EpHandleConfig(_Ep):
    _fields_ = _HEAD + [
        ("version", _uint),
        ("dispatch_output_per_expert_alignment", _uint),
        ("max_tokens_per_expert", _uint),
        ("pad_to_capacity", _uint),
        ("static_topk", _uint),
        ("undefined_padding", _uint),
    ]


class EpLayoutInfo(_Ep):
    _fields_ = _HEAD + [
        (name, _TENSOR)
        for name in (
            "expert_counters",
            "expert_offsets",
            "src_rank_counters",
            "recv_total_counter",
            "dropped_counters",
            "dropped",
        )
    ]


class EpDispatchInputs(_Ep):
    _fields_ = _HEAD + [(name, _TENSOR) for name in ("tokens", "topk_weights", "scales")]


class EpDispatchOutputs(_Ep):
    _fields_ = _HEAD + [(name, _TENSOR) for name in ("tokens", "topk_weights", "topk_idx", "scales")]


class EpCombineInputs(_Ep):
    _fields_ = _HEAD + [(name, _TENSOR) for name in ("tokens", "topk_weights")]


class EpCombineOutputs(_Ep):
    _fields_ = _HEAD + [(name, _TENSOR) for name in ("tokens", "topk_weights")]


class EpDispatchConfig(_Ep):
    """Also of a combine: both have the same fields."""

    _fields_ = _HEAD + [("send_only", _uint), ("weighted", _uint)]


class EpStatsStruct(_Ep):
    _fields_ = _HEAD + [("strategy", ctypes.c_int)] + [
        (name, _u64)
        for name in (
            "tokens_local",
            "tokens_node",
            "tokens_network",
            "dispatch_bytes_local",
            "dispatch_bytes_node",
            "dispatch_bytes_network",
            "combine_bytes_network",
        )
    ]


class EpPlacementConfig(_Ep):
    _fields_ = _HEAD + [
        ("version", _uint),
        ("num_experts", _uint),
        ("num_ranks", _uint),
        ("slots_per_rank", _uint),
        ("rank_to_node", ctypes.POINTER(ctypes.c_int)),
        ("num_expert_groups", _uint),
        ("max_moves", _uint),
        ("tolerance", ctypes.c_double),
    ]


class EpPlacementInfo(_Ep):
    _fields_ = _HEAD + [
        ("balance_before", ctypes.c_double),
        ("balance_after", ctypes.c_double),
        ("moves", _uint),
        ("moves_network", _uint),
    ]


class EpProgressStruct(_Ep):
    _fields_ = _HEAD + [
        (name, _u64)
        for name in (
            "calls_started",
            "calls_past_stage1",
            "calls_over",
            "stage1_bytes_done",
            "stage1_bytes",
            "stage2_bytes_done",
            "stage2_bytes",
        )
    ]
