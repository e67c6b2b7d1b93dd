"""pip's build backend (PEP 517): setup.py compiles, this packs what it made. setuptools makes wheels by itself since version 70.1 only; the one that
a new environment of an older Python has needs the package `wheel`, which is not there."""

import base64
import email
import hashlib
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "epccl_torch"


def _setup(*arguments) -> None:
    run = subprocess.run([sys.executable, "setup.py", "-q", *arguments], cwd=HERE)
    if run.returncode != 0:
        raise SystemExit(f"{PACKAGE}: setup.py {arguments[0]} failed, as it says above")


def _tag() -> str:
    python = "cp%d%d" % sys.version_info[:2]
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{python}-{python}{getattr(sys, 'abiflags', '')}-{platform}"


def _metadata(egg_info: Path):
    metadata = email.message_from_string((egg_info / "PKG-INFO").read_text())
    if "Requires-Dist" not in metadata:  # of older versions of setuptools
        for line in (egg_info / "requires.txt").read_text().split():
            metadata["Requires-Dist"] = line
    return metadata


def pack(built: Path, wheel_directory: str) -> str:
    """Makes a wheel of the package that setup.py has built there. Returns its name."""
    with tempfile.TemporaryDirectory() as scratch:
        _setup("egg_info", "--egg-base", scratch)
        egg_info = Path(scratch) / f"{PACKAGE}.egg-info"
        metadata = _metadata(egg_info)
        name = f"{PACKAGE}-{metadata['Version']}"
        info = f"{name}.dist-info"
        files = {
            f"{PACKAGE}/{path.name}": path.read_bytes() for path in sorted((built / PACKAGE).iterdir()) if path.is_file()
        }
        files[f"{info}/METADATA"] = metadata.as_bytes()
        files[f"{info}/entry_points.txt"] = (egg_info / "entry_points.txt").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: epccl\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    record = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    record.append(f"{info}/RECORD,,")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    wheel = f"{name}-{_tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as scratch:
        _setup("build", "--build-lib", scratch)
        return pack(Path(scratch), wheel_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    from setuptools import build_meta

    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
