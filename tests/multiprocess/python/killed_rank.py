"""The last rank is killed in the middle of the job: every other one is told who, at once."""

import os
import signal
import sys
import time

import epccl
import numpy as np

comm = epccl.Communicator.from_launcher(timeout=60)
send = np.ones(comm.size, np.int32)
last = comm.size - 1
begin = time.monotonic()
try:
    comm.alltoall(send, send.copy())  # the last rank may be through, and die, while others are still in it
    if comm.rank == last:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.alltoall(send, send.copy())
except epccl.RemoteError as failure:
    assert f"rank {last}" in str(failure), failure
    assert time.monotonic() - begin < 30
    print(f"rank {comm.rank} names it: {failure}")
    sys.exit(0)
sys.exit("no error")
