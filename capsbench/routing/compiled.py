"""Kernels in C for a CPU, compiled in the process that uses them, where there is a compiler.

Nothing is kept: a kernel compiles in half a second at the paper's sizes, for the processor that it then runs on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from torch import Tensor

FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC", "-w")
X86 = ("-mprefer-vector-width=512",)
COMPILERS = ("gcc", "cc", "clang")  # OpenMP's functions are found in PyTorch's wheels for gcc alone
SECONDS = 60  # for a compiler


class CompilerError(RuntimeError):
    """A kernel could not be compiled or loaded; the message goes on after its name: it "needs a C compiler"."""


def library(source: str, *flags: str) -> ctypes.CDLL:
    """C source, compiled with these flags too, and loaded, once a process; so is a failure.

    Its threads are torch's: OpenMP's functions are not linked but looked up among those of this process. Raises
    CompilerError.
    """
    built = _built(source, *flags)
    if isinstance(built, str):
        raise CompilerError(built)
    return built


def places(*tensors: Tensor | None) -> list[ctypes.c_void_p]:
    """Where their numbers lie, as arguments of a kernel; NULL for None."""
    return [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in tensors]


@functools.cache
def _built(source: str, *flags: str) -> ctypes.CDLL | str:
    """The library by the first compiler whose library loads, or what the first one says against it."""
    named = os.environ.get("CC")
    reasons = []
    for compiler in [named] if named else filter(shutil.which, COMPILERS):
        try:
            return _built_by(compiler.split(), source, flags)
        except CompilerError as error:
            reasons.append(str(error))
    return reasons[0] if reasons else "needs a C compiler (gcc, cc, clang or what CC names), and there is none"


def _built_by(compiler: list[str], source: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    wide = X86 if platform.machine() in ("x86_64", "AMD64") else ()
    name = " ".join(compiler)
    try:
        with tempfile.TemporaryDirectory(prefix="capsbench-kernels-") as folder:
            c, compiled, linked = (Path(folder) / f"kernels.{end}" for end in ("c", "o", "so"))
            c.write_text(source, encoding="utf-8")
            _run(*compiler, *FLAGS, *wide, *flags, "-c", str(c), "-o", str(compiled))
            _run(*compiler, "-shared", str(compiled), "-o", str(linked), "-lm")
            return ctypes.CDLL(str(linked))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [""]
        said = next((line for line in lines if "error" in line), lines[0])
        raise CompilerError(f"does not compile here ({name}: {said[:200]})") from None
    except subprocess.TimeoutExpired:
        raise CompilerError(f"does not compile here ({name} took over {SECONDS} s)") from None
    except OSError as error:  # no such compiler, nowhere to write, or what it made does not load
        raise CompilerError(f"does not compile here ({name}: {error})") from None


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
