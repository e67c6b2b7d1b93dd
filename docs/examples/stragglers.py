"""Which rank keeps the others waiting: epccl-run -n 4 python3 stragglers.py"""

import time

import epccl
import numpy as np

STEPS, TOKENS, HIDDEN = 40, 64, 256

with epccl.Communicator.from_launcher() as comm:
    comm.measure_calls(True)
    x = np.ones((comm.size, TOKENS, HIDDEN), np.float32)
    y = np.empty_like(x)
    for step in range(STEPS):
        time.sleep(0.020 if comm.rank == 2 else 0.005)  # what the rank computes; rank 2 is slow
        comm.alltoall(x, y)
    found = comm.find_stragglers()  # all ranks call it, and are told the same
    if comm.rank == 0:
        print(found)
