"""Importing the package makes CUDA load kernels with their module, and initialises nothing; where it is too late, or told otherwise, it warns."""

import os
import warnings

os.environ.pop("CUDA_MODULE_LOADING", None)

import torch  # noqa: E402

import epccl_torch  # noqa: E402


def warned():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        epccl_torch._load_kernels_eagerly()
    return ["CUDA_MODULE_LOADING=EAGER" in str(each.message) for each in said]


if torch.version.cuda is None:
    assert "CUDA_MODULE_LOADING" not in os.environ and warned() == []
else:
    assert os.environ["CUDA_MODULE_LOADING"] == "EAGER" and warned() == []
    assert not torch.cuda.is_initialized()
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    assert warned() == [True]
    del os.environ["CUDA_MODULE_LOADING"]
    torch.cuda.is_initialized = lambda: True
    assert warned() == [True] and "CUDA_MODULE_LOADING" not in os.environ
