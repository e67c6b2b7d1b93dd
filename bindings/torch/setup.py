"""Builds epccl_torch for the PyTorch of this Python: pip install --no-build-isolation ./bindings/torch

EPCCL_LIB       libepccl.so to link with; else that of the source tree's build directory, else pkg-config's
EPCCL_INCLUDE   where epccl/epccl.h is; else the source tree's include directory, else pkg-config's
EPCCL_WERROR    not empty: warnings are errors
"""

import os
import subprocess
from pathlib import Path

# What older versions of this package left behind makes `import torch` load it, and it may not be built yet.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from setuptools import setup  # noqa: E402
from torch import __version__ as torch_version  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
# The C++ interface of backends differs between versions (csrc/versions.hpp): these build, and the tests run with the last one.
KNOWN = ("2.11", "2.12", "2.13", "2.14", "2.15")


def pkg_config(variable: str) -> str:
    asked = subprocess.run(["pkg-config", f"--variable={variable}", "epccl"], capture_output=True, text=True)
    if asked.returncode != 0:
        raise SystemExit("epccl_torch: EPCCL was not found: set EPCCL_LIB and EPCCL_INCLUDE, or PKG_CONFIG_PATH")
    return asked.stdout.strip()


def library_directory() -> str:
    if given := os.environ.get("EPCCL_LIB"):
        return str(Path(given).resolve().parent)
    built = TREE / "build" / "lib"
    return str(built) if (built / "libepccl.so").exists() else pkg_config("libdir")


def include_directory() -> str:
    if given := os.environ.get("EPCCL_INCLUDE"):
        return given
    own = TREE / "include"
    return str(own) if (own / "epccl" / "epccl.h").exists() else pkg_config("includedir")


if not torch_version.startswith(tuple(f"{version}." for version in KNOWN)):
    raise SystemExit(
        f"epccl_torch: this is PyTorch {torch_version}; known to build are {', '.join(KNOWN)}. "
        "The interface of backends changes with PyTorch's versions."
    )


# Some machines have only the archive of libstdc++ beside their compiler, or flags that choose it. But PyTorch's libraries have the shared one, and
# the streams of two of them in a process get into each other's way, and crash. So the one that this process has is named.
def shared_library_of_cpp() -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    loaded = {line.split(maxsplit=5)[5] for line in lines if "/libstdc++.so" in line}
    return sorted(path for path in loaded if os.path.isfile(path))[:1]


def has_a_libstdcpp_of_its_own(file: Path) -> bool:
    """False also where there is no nm to ask."""
    try:
        asked = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True)
    except OSError:
        return False
    return any(line.endswith(" _ZNSt6locale7classicEv") for line in asked.stdout.splitlines())


class AsOneFile(cpp_extension.BuildExtension):
    """Compiles all sources as one file: nearly all of the time goes into PyTorch's headers, which are read once then."""

    def build_extensions(self) -> None:
        folder = Path(self.build_temp).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for extension in self.extensions:
            all_sources = folder / f"{extension.name}.cpp"
            text = "".join(f'#include "{HERE / source}"\n' for source in extension.sources)
            if not all_sources.exists() or all_sources.read_text() != text:
                all_sources.write_text(text)
            extension.depends += extension.sources
            extension.sources = [str(all_sources)]
        super().build_extensions()
        for extension in self.extensions:
            built = Path(self.get_ext_fullpath(extension.name))
            if has_a_libstdcpp_of_its_own(built):
                built.unlink()
                raise SystemExit(f"epccl_torch: {built.name} was linked with an archive of libstdc++: PyTorch's libraries need the shared one")


# As system directories: their warnings are not ours.
strict = ["-Werror"] if os.environ.get("EPCCL_WERROR") else []
system = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
extension = cpp_extension.CppExtension(
    "epccl_torch._C",
    sorted(str(path.relative_to(HERE)) for path in (HERE / "csrc").glob("*.cpp")),
    depends=sorted(str(path.relative_to(HERE)) for path in (HERE / "csrc").glob("*.hpp")),
    include_dirs=[include_directory()],
    library_dirs=[library_directory()],
    libraries=["epccl"],
    extra_link_args=shared_library_of_cpp(),
    extra_compile_args=["-std=c++20", "-O2", "-g0", "-Wall", "-Wextra", *strict, "-fvisibility=hidden", *system],
)
version = (TREE / "bindings/python/epccl/_version.py").read_text().split('"')[1]
setup(
    version=version,
    install_requires=[f"epccl=={version}", f"torch=={'.'.join(torch_version.split('.')[:2])}.*"],
    packages=["epccl_torch"],
    package_data={"epccl_torch": ["py.typed"]},
    ext_modules=[extension],
    cmdclass={"build_ext": AsOneFile},
)
