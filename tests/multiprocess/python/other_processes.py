"""Errors go to another process, and come from one, as they are. Needs no launcher: the other process is one of multiprocessing's."""

import copy
import multiprocessing
import pickle

import epccl
from expectations import expect_error


def refused():
    epccl.Communicator(1, epccl.get_unique_id(), 0, algorithm="none such")


if __name__ == "__main__":
    failure = expect_error(epccl.InvalidArgument, "none such", refused)
    made = [
        epccl.EpcclError(epccl.Result.INTERNAL_ERROR, "no call"),
        epccl.RemoteError(epccl.Result.REMOTE_ERROR, "rank 1 died", "epcclSend"),
        epccl.RemoteError(epccl.Result.REMOTE_ERROR, "rank 1 is silent", "epcclSend", epccl.Reason.TIMEOUT),
    ]
    for error in [failure, *made]:
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error) and str(again) == str(error)
            assert (again.code, again.text, again.call, again.reason) == (error.code, error.text, error.call, error.reason)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        told = expect_error(epccl.InvalidArgument, "none such", lambda: pool.apply(refused))
    assert told.code == epccl.Result.INVALID_ARGUMENT and told.call == failure.call
