"""Makes the wheel of this package: pip's build backend (PEP 517), with Python's own library only.

The package is Python files. libepccl.so is put beside them where one is at hand: EPCCL_LIB, or else that of the source tree's
build directory. Without one the wheel has none, and the library is looked for when the package is imported.
"""

import base64
import hashlib
import os
import re
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
LICENSE = TREE / "LICENSE"  # not where somebody has copied this folder alone


def _version() -> str:
    text = (HERE / "epccl" / "_version.py").read_text()
    return re.search(r'__version__ = "(.+)"', text)[1]


def _library():
    if given := os.environ.get("EPCCL_LIB"):
        if not Path(given).is_file():
            raise SystemExit(f"EPCCL_LIB={given} is not a file")
        return Path(given).resolve()
    built = TREE / "build" / "lib" / "libepccl.so"
    return built.resolve() if built.is_file() else None


def _metadata() -> str:
    license_file = "License-File: LICENSE\n" if LICENSE.is_file() else ""
    return (
        "Metadata-Version: 2.1\n"
        "Name: epccl\n"
        f"Version: {_version()}\n"
        "Summary: EPCCL: collective communication for expert parallelism, on buffers, NumPy arrays and PyTorch's CPU tensors\n"
        "License: BSD-3-Clause\n"
        + license_file
        + "Requires-Python: >=3.9\n"
        "Provides-Extra: numpy\n"
        "Requires-Dist: numpy; extra == 'numpy'\n"
        "Description-Content-Type: text/markdown\n"
        "\n" + (HERE / "README.md").read_text()
    )


def _write(directory: str, files: dict, pure: bool) -> str:
    tag = "py3-none-" + ("any" if pure else sysconfig.get_platform().replace("-", "_").replace(".", "_"))
    name = f"epccl-{_version()}"
    info = f"{name}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = _metadata().encode()
    if LICENSE.is_file():
        files[f"{info}/LICENSE"] = LICENSE.read_bytes()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: epccl\nRoot-Is-Purelib: {str(pure).lower()}\nTag: {tag}\n".encode()
    )
    record = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    record.append(f"{info}/RECORD,,")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    wheel = f"{name}-{tag}.whl"
    with zipfile.ZipFile(Path(directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {
        str(path.relative_to(HERE)): path.read_bytes()
        for path in sorted((HERE / "epccl").rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    }
    library = _library()
    if library:
        files["epccl/libepccl.so"] = library.read_bytes()
    return _write(wheel_directory, files, pure=library is None)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write(wheel_directory, {"_epccl_editable.pth": f"{HERE}\n".encode()}, pure=True)
