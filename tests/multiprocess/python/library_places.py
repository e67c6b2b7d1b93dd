"""The library is found in each folder of a prefix into which CMake installs it."""

import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from epccl import _library

del os.environ["EPCCL_LIB"]
multiarch = sysconfig.get_config_var("MULTIARCH")
with tempfile.TemporaryDirectory() as prefix:
    sys.prefix = sys.base_prefix = prefix
    before = list(_library.candidates())
    for folder in ("lib", "lib64", f"lib/{multiarch}") if multiarch else ("lib", "lib64"):
        library = Path(prefix, folder, _library.SONAME)
        library.parent.mkdir(exist_ok=True)
        library.touch()
        assert str(library) in _library.candidates(), f"{folder} is not looked into"
        library.unlink()
    assert list(_library.candidates()) == before, "what is not there is named"
print("found in each")
