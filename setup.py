"""The compiled kernel, kourou.store._kernel; everything else about the package is in pyproject.toml.

Where the kernel cannot be compiled, the package is built without it. The variable KOUROU_KERNEL changes that:
0 leaves it out, 1 makes it an error if it cannot be compiled.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

VARIABLE = "KOUROU_KERNEL"
SOURCES = "src/kourou/store/native"
CHOICE = os.environ.get(VARIABLE, "")
KERNEL = Extension(
    "kourou.store._kernel",
    [f"{SOURCES}/module.c"],
    depends=[path.as_posix() for path in sorted(Path(SOURCES).glob("*.h"))],
    extra_compile_args=["-std=c11", "-O2"],
    # One binary for all versions from 3.11 on; the source says so too.
    py_limited_api=True,
    optional=CHOICE != "1",
)


class BuildAfresh(build):
    """Builds in a folder of its own: in ./build modules that were deleted since would get into the wheel."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="kourou-build-")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)


class BuildKernel(build_ext):
    """Builds the kernel, or says why not."""

    def run(self) -> None:
        if CHOICE == "0":
            self._leave_out(f"{VARIABLE}=0")
        else:
            super().run()
        if self.inplace and not self.extensions:
            # The kernel of an earlier installation would be used otherwise.
            Path(self.get_ext_fullpath(KERNEL.name)).unlink(missing_ok=True)

    def build_extension(self, ext: Extension) -> None:
        # It needs no library but C's: the folders that this Python was linked with are not for a wheel.
        if words := getattr(self.compiler, "linker_so", None):
            self.compiler.linker_so = [word for word in words if not word.startswith("-Wl,-rpath")]
        try:
            super().build_extension(ext)
        except (CCompilerError, ExecError, PlatformError) as error:
            if not ext.optional:
                raise
            self._leave_out(
                f"{error}. Sends will take two to three times the processor time of a broker. To build it, "
                "install a C compiler and Python's headers (Debian, Ubuntu: gcc, libc6-dev, python3-dev), "
                "then install Kourou again"
            )

    def _leave_out(self, reason: str) -> None:
        print(f"kourou: building without the compiled kernel: {reason}", flush=True)
        self.extensions = self.distribution.ext_modules = []


class Wheel(bdist_wheel):
    """A wheel without the kernel is for every platform."""

    def get_tag(self) -> tuple[str, str, str]:
        self.root_is_pure = not self.distribution.has_ext_modules()
        return super().get_tag()


# Free-threaded Python has no stable ABI; the kernel is not compiled there.
HAS_STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[KERNEL],
    cmdclass={"build": BuildAfresh, "build_ext": BuildKernel, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_STABLE_ABI else {},
)
