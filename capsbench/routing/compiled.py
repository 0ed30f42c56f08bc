"""Kernels in C for a CPU, compiled in the process that uses them, where there is a compiler.

Nothing is kept: a kernel compiles in half a second, for the processor that it then runs on.
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
WIDE = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
SECONDS = 120  # for a compiler


class CompilerError(RuntimeError):
    """A kernel could not be compiled or loaded; the message goes on after its name: it "needs a C compiler"."""


@functools.cache
def library(source: str, *flags: str) -> ctypes.CDLL:
    """C source, compiled with these flags too, and loaded.

    Its threads are torch's: OpenMP's functions are not linked but looked up among those of this process. Raises
    CompilerError.
    """
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise CompilerError("needs a C compiler (cc, gcc, clang or what CC names), and there is none")
    with tempfile.TemporaryDirectory(prefix="capsbench-kernels-") as folder:
        c, compiled, linked = (Path(folder) / f"kernels.{end}" for end in ("c", "o", "so"))
        c.write_text(source, encoding="utf-8")
        for command in (
            [*compiler.split(), *FLAGS, *WIDE, *flags, "-c", str(c), "-o", str(compiled)],
            [*compiler.split(), "-shared", str(compiled), "-o", str(linked), "-lm"],
        ):
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
            except subprocess.CalledProcessError as error:
                said = (error.stderr.strip().splitlines() or [""])[0]
                raise CompilerError(f"does not compile here ({compiler}: {said[:200]})") from None
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CompilerError(f"does not compile here ({compiler}: {error})") from None
        try:
            return ctypes.CDLL(str(linked))
        except OSError as error:
            raise CompilerError(f"does not load here ({error})") from None


def places(*tensors: Tensor | None) -> list[ctypes.c_void_p]:
    """Where their numbers lie, as arguments of a kernel; NULL for None."""
    return [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in tensors]
