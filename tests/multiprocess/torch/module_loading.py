"""Importing the package makes CUDA load kernels with their module, and initialises nothing; where it is too late, or told otherwise, it
warns. Programs that have no GPU, or hide all, are left alone."""

import os
import warnings

os.environ.pop("CUDA_MODULE_LOADING", None)
os.environ.pop("CUDA_VISIBLE_DEVICES", None)

import torch  # noqa: E402

import epccl_torch  # noqa: E402


def warned():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        epccl_torch._load_kernels_eagerly()
    return ["CUDA_MODULE_LOADING=EAGER" in str(each.message) for each in said]


def is_left_alone():
    os.environ.pop("CUDA_MODULE_LOADING", None)
    return warned() == [] and "CUDA_MODULE_LOADING" not in os.environ


assert not torch.cuda.is_initialized()
if torch.version.cuda is None:
    assert "CUDA_MODULE_LOADING" not in os.environ and warned() == []
else:
    here = any(map(os.path.exists, epccl_torch._DRIVER_FILES))
    assert os.environ.get("CUDA_MODULE_LOADING") == ("EAGER" if here else None)
    epccl_torch._DRIVER_FILES = ()
    assert is_left_alone()
    epccl_torch._DRIVER_FILES = (os.devnull,)
    for hidden in ("", "-1"):
        os.environ["CUDA_VISIBLE_DEVICES"] = hidden
        assert is_left_alone()
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    assert warned() == [] and os.environ["CUDA_MODULE_LOADING"] == "EAGER"
    assert not torch.cuda.is_initialized()
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    assert warned() == [True]
    del os.environ["CUDA_MODULE_LOADING"]
    torch.cuda.is_initialized = lambda: True
    assert warned() == [True] and "CUDA_MODULE_LOADING" not in os.environ
