"""The loop of docs/recovery.md (docs/examples/recovery.py): ranks die one after the other and at once, and those that are left go on.

    rank_deaths.py                     every case
    rank_deaths.py RANK@STEP ...       one rank of a case, where these die before the step, told by the environment which
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "docs/examples"))
STEPS = 30
# Ranks, nodes, who dies when. Rank 0's process is the one that tells the others of deaths.
CASES = [
    (4, 1, "3@5 1@12"),
    (4, 1, "0@5 1@12"),
    (5, 1, "1@5 3@5"),
    (5, 1, "0@5 2@5"),
    (6, 1, "0@5 1@5 5@5 2@12"),
    (4, 2, "3@5 1@12"),
    (6, 2, "1@5 4@5"),
    (6, 2, "0@5 1@5"),
]
# Those of another node find nobody where they are to meet at rank 1; that says nothing of it where a loopback address is all there is.
NEEDS_AN_ADDRESS = CASES[-1]


def run_rank(deaths):
    import epccl
    import numpy as np
    import recovery

    comm = epccl.Communicator.from_launcher(timeout=60)
    me = comm.rank

    def one_step(comm, step):
        if f"{me}@{step}" in deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        given = np.full(1000, step, np.int64)
        comm.allreduce(given)
        assert (given == step * comm.size).all(), (step, comm.size, given[0])

    comm = recovery.train(comm, STEPS, one_step)
    print(f"through with {comm.size} ranks", flush=True)
    comm.destroy()


def run_case(ranks, nodes, deaths):
    dead = {int(death.split("@")[0]) for death in deaths.split()}
    with tempfile.TemporaryDirectory() as store:
        of_rank = {"EPCCL_WORLD_SIZE": str(ranks), "EPCCL_STORE": store, "PYTHONUNBUFFERED": "1"}
        jobs = [
            subprocess.Popen(
                [sys.executable, __file__, *deaths.split()],
                env={**os.environ, **of_rank, "EPCCL_RANK": str(rank), "EPCCL_HOSTID": f"node{rank * nodes // ranks}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            for rank, job in enumerate(jobs):
                said, _ = job.communicate(timeout=50)
                wanted = f"through with {ranks - len(dead)} ranks"
                if rank not in dead and (job.returncode != 0 or wanted not in said):
                    sys.exit(f"{ranks} ranks on {nodes} nodes, {deaths}: rank {rank} ended with {job.returncode}: {said}")
        finally:
            for job in jobs:
                job.kill()
                job.wait()
    print(f"{ranks} ranks on {nodes} nodes, {deaths}: well")


if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
    except ImportError:
        sys.exit(77)
    if len(sys.argv) > 1:
        run_rank(sys.argv[1:])
    else:
        has_an_address = len(pathlib.Path("/proc/net/route").read_text().splitlines()) > 1
        for case in CASES:
            if has_an_address or case != NEEDS_AN_ADDRESS:
                run_case(*case)
