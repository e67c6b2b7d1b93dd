"""Finds libepccl.so and declares its functions."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from ._structs import CallTimesStruct, Config, EpDispatchConfig, RankTimesStruct, SimInfo, StatisticsStruct, StragglersStruct, UniqueIdStruct, check_range
from .errors import EpcclError, LibraryNotFound, Result, make_error

SONAME = "libepccl.so.0.1"


def candidates() -> Iterator[str]:
    """Where the library is looked for, in this order. Yields paths, and at last a name for the system's loader."""
    if given := os.environ.get("EPCCL_LIB"):
        yield given  # what the user names is used or refused, never passed over
        return
    beside = Path(__file__).resolve().parent
    yield from (str(path) for path in (beside / "libepccl.so", beside / SONAME) if path.exists())
    # CMake's LIBDIR: of Debian's packages one for each architecture.
    multiarch = sysconfig.get_config_var("MULTIARCH")
    folders = ("lib", "lib64", *([f"lib/{multiarch}"] if multiarch else []))
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield from (str(path) for folder in folders if (path := Path(prefix) / folder / SONAME).exists())
    yield SONAME


def _load() -> tuple[ctypes.CDLL, str]:
    tried = []
    for path in candidates():
        try:
            return ctypes.CDLL(path), path
        except OSError as failure:
            tried.append(f"  {path}: {failure}")
    raise LibraryNotFound(
        "libepccl.so was not found. Set EPCCL_LIB to its path, or install EPCCL (cmake --install build). Tried:\n"
        + "\n".join(tried)
    )


_c, _int, _size, _p = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER


class _Number(NamedTuple):
    """An argument that is the program's own number, by the name that it has in Python."""

    name: str
    kind: Any = _int


_nranks, _rank, _peer, _root, _op, _stage = (_Number(name) for name in ("nranks", "rank", "peer", "root", "op", "stage"))

_SIGNATURES: dict[str, list[Any]] = {
    "epcclGetVersion": [_p(_int)],
    "epcclResetDebugInit": [],
    "epcclGetUniqueId": [_p(UniqueIdStruct)],
    "epcclCommInitRankConfig": [_p(_c), _nranks, UniqueIdStruct, _rank, _p(Config)],
    "epcclCommInitLauncher": [_p(_c), _p(Config)],
    "epcclCommInitRankScalable": [_p(_c), _nranks, _rank, _int, _p(UniqueIdStruct), _p(Config)],
    "epcclCommInitAll": [_p(_c), _int, _p(_int)],
    "epcclCommSplit": [_c, _Number("color"), _Number("key"), _p(_c), _p(Config)],
    "epcclCommShrink": [_c, _p(_int), _int, _p(_c), _p(Config), _int],
    "epcclCommRevoke": [_c, _int],
    "epcclCommFinalize": [_c],
    "epcclCommDestroy": [_c],
    "epcclCommAbort": [_c],
    "epcclCommQuery": [_c],
    "epcclCommGetAsyncError": [_c, _p(_int)],
    "epcclCommSetTimeout": [_c, ctypes.c_double],
    "epcclCommSetCopyEngine": [_c, ctypes.c_char_p],
    "epcclCommCheckCopyEngines": [_c, _int, _p(_int), ctypes.c_char_p, _size],
    "epcclCommGetStatistics": [_c, _p(StatisticsStruct)],
    "epcclCommMeasureCalls": [_c, _int],
    "epcclCommGetCallTimes": [_c, _p(CallTimesStruct)],
    "epcclCommFindStragglers": [_c, _p(StragglersStruct), _p(RankTimesStruct)],
    "epcclCommGetLostRanks": [_c, _p(_int), _int, _p(_int)],
    "epcclCommCount": [_c, _p(_int)],
    "epcclCommUserRank": [_c, _p(_int)],
    "epcclCommDevice": [_c, _p(_int)],
    "epcclMemAlloc": [_p(_c), _Number("nbytes", _size)],
    "epcclMemAllocOn": [_p(_c), _Number("nbytes", _size), _int],
    "epcclMemFree": [_c],
    "epcclCommRegister": [_c, _c, _size, _p(_c)],
    "epcclCommDeregister": [_c, _c],
    "epcclCommWindowRegister": [_c, _c, _size, _p(_c), _int],
    "epcclCommWindowDeregister": [_c, _c],
    "epcclGroupStart": [],
    "epcclGroupEnd": [],
    "epcclGroupSimulateEnd": [_p(SimInfo)],
    "epcclSend": [_c, _size, _int, _peer, _c, _c],
    "epcclRecv": [_c, _size, _int, _peer, _c, _c],
    "epcclAlltoall": [_c, _c, _size, _int, _c, _c],
    "epcclAlltoallv": [_c, _p(_size), _p(_size), _c, _p(_size), _p(_size), _int, _c, _c],
    "epcclAllGather": [_c, _c, _size, _int, _c, _c],
    "epcclReduceScatter": [_c, _c, _size, _int, _op, _c, _c],
    "epcclAllReduce": [_c, _c, _size, _int, _op, _c, _c],
    "epcclBroadcast": [_c, _c, _size, _int, _root, _c, _c],
    "epcclReduce": [_c, _c, _size, _int, _op, _root, _c, _c],
    "epcclGather": [_c, _c, _size, _int, _root, _c, _c],
    "epcclScatter": [_c, _c, _size, _int, _root, _c, _c],
    "epcclRedOpCreatePreMulSum": [_p(_int), _c, _int, _int, _c],
    "epcclRedOpDestroy": [_op, _c],
    "epcclStreamCreate": [_p(_c)],
    "epcclStreamSynchronize": [_c],
    "epcclStreamQuery": [_c],
    "epcclStreamDestroy": [_c],
    "epcclEventCreate": [_p(_c)],
    "epcclEventRecord": [_c, _c],
    "epcclEventQuery": [_c],
    "epcclEventSynchronize": [_c],
    "epcclStreamWaitEvent": [_c, _c],
    "epcclEventDestroy": [_c],
    "epcclEpCreateGroup": [_p(_c), _c, _c],
    "epcclEpGroupDestroy": [_c],
    "epcclEpCreateHandle": [_p(_c), _c, _int, _c, _c, _c, _c],
    "epcclEpUpdateHandle": [_c, _c, _c, _c],
    "epcclEpHandleDestroy": [_c],
    "epcclEpDispatch": [_c, _c, _c, _p(EpDispatchConfig), _c],
    "epcclEpCombine": [_c, _c, _c, _p(EpDispatchConfig), _c],
    "epcclEpGetProgress": [_c, _c],
    "epcclEpCompleteStage": [_c, _stage],
    "epcclEpStreamWaitStage": [_c, _c, _stage],
    "epcclEpGetStats": [_c, _c],
    "epcclEpPlaceExperts": [_c, _c, _c, _c, _c],
    "epcclEpPickSlots": [_c, _c, _rank, _int, _c, _c],
    "epcclEpMigrateExperts": [_c, _Number("slots_per_rank", ctypes.c_uint), _c, _c, _c, _c, ctypes.c_uint, _c, _size, _c],
}

_library, path = _load()
# Of a function: where its numbers are.
_numbers: dict[str, list[tuple[int, _Number]]] = {}


def _declare() -> None:
    for name, arguments in _SIGNATURES.items():
        try:
            function = getattr(_library, name)
        except AttributeError:
            raise LibraryNotFound(f"{path} has no {name}: it is older than this package") from None
        function.argtypes = [given.kind if isinstance(given, _Number) else given for given in arguments]
        function.restype = _int
        _numbers[name] = [(at, given) for at, given in enumerate(arguments) if isinstance(given, _Number)]
    for name in ("epcclGetErrorString", "epcclGetLastError"):
        getattr(_library, name).restype = ctypes.c_char_p
    _library.epcclGetErrorString.argtypes = [_int]
    _library.epcclGetLastError.argtypes = [_c]
    _library.epcclGetLastErrorReason.argtypes = [_c]
    _library.epcclGetLastErrorReason.restype = _int


_declare()


def call(name: str, *arguments: Any, comm: ctypes.c_void_p | None = None) -> None:
    """Calls a function of the library; a code that is not success becomes an exception. `comm` tells background errors."""
    code = code_of(name, *arguments)
    if code != Result.SUCCESS:
        raise failure(name, code, comm)


def begin(name: str, *arguments: Any, comm: ctypes.c_void_p | None = None) -> None:
    """As call(), of what may go on in the background (Result.IN_PROGRESS)."""
    code = code_of(name, *arguments)
    if code not in (Result.SUCCESS, Result.IN_PROGRESS):
        raise failure(name, code, comm)


def code_of(name: str, *arguments: Any) -> int:
    """Calls a function of the library and returns its code. ValueError: a number that C does not have there."""
    for at, number in _numbers[name]:
        check_range(number.name, arguments[at], number.kind)
    code: int = getattr(_library, name)(*arguments)
    return code


def failure(name: str, code: int, comm: ctypes.c_void_p | None = None) -> EpcclError:
    text = (_library.epcclGetLastError(comm) or b"").decode(errors="replace")
    reason = _library.epcclGetLastErrorReason(comm)
    return make_error(code, text or _library.epcclGetErrorString(code).decode(), name, reason)


def reset_debug() -> None:
    """Has EPCCL_DEBUG, EPCCL_DEBUG_SUBSYS and EPCCL_DEBUG_FILE read from the environment again (epcclResetDebugInit)."""
    call("epcclResetDebugInit")


def version() -> tuple[int, int, int]:
    """Version of the loaded library: (major, minor, patch)."""
    code = _int()
    call("epcclGetVersion", ctypes.byref(code))
    return code.value // 10000, code.value // 100 % 100, code.value % 100
