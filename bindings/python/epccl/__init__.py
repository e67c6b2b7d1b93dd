"""EPCCL: collective communication for expert parallelism, on buffers, NumPy arrays and PyTorch's CPU tensors.

    import epccl, numpy as np

    with epccl.Communicator.from_launcher() as comm:          # epccl-run -n 4 python3 program.py
        send = np.arange(4 * comm.size, dtype=np.float32) + 100 * comm.rank
        recv = np.empty_like(send)
        comm.alltoall(send, recv)

The names follow the C API (the headers include/epccl), which says everything exactly. A failing call raises
:class:`EpcclError`, with the library's code and its text.
"""

from ._library import reset_debug, version
from ._version import __version__
from .communicator import Communicator, get_unique_id
from .config import Settings
from .datatypes import DataType, RedOp
from .ep import EpGroup, EpHandle
from .errors import (
    EpcclError,
    InvalidArgument,
    InvalidUsage,
    LibraryNotFound,
    Reason,
    RemoteError,
    Result,
    SystemFailure,
)
from .groups import group, simulated_group
from .memory import empty, mem_alloc
from .placement import Placement, PlacementRules, SlotChoice, migrate_experts, pick_slots, place_experts
from .registrations import Registration, Window
from .routings import Counters, Layout, Progress, Stats, Strategy
from .stragglers import Lateness, RankTimes, Stragglers
from .streams import Event, Stream

__all__ = [
    "Communicator",
    "Counters",
    "DataType",
    "EpGroup",
    "EpHandle",
    "EpcclError",
    "Event",
    "InvalidArgument",
    "InvalidUsage",
    "Lateness",
    "Layout",
    "LibraryNotFound",
    "Placement",
    "PlacementRules",
    "Progress",
    "RankTimes",
    "Reason",
    "RedOp",
    "Registration",
    "RemoteError",
    "Result",
    "Settings",
    "SlotChoice",
    "Stats",
    "Stragglers",
    "Strategy",
    "Stream",
    "SystemFailure",
    "Window",
    "__version__",
    "empty",
    "get_unique_id",
    "group",
    "mem_alloc",
    "migrate_experts",
    "pick_slots",
    "place_experts",
    "reset_debug",
    "simulated_group",
    "version",
]
