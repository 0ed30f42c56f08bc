"""Compile the tiles' kernels for compute capability 9.0, which needs no GPU, and say what is in them.

A line a kernel, at PrimaryCaps' size and with 64 channels: its name and outputs, what the code has and has not, then
registers a thread and bytes of them that are kept in memory.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler
from triton.runtime import driver

from capsbench.models import gpu_tile_launch as launch

TOOLS = Path(compiler.__file__).parent / "bin"  # NVIDIA's, which Triton's wheel brings


class NoGpu:
    """A driver that knows what to compile for, and can start nothing."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compile_and_say(kernel: Any, grid: tuple[int, ...], *given: Any, **sizes: Any) -> None:
    made = kernel.warmup(*given, grid=grid, **sizes, enable_fp_fusion=True)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        words = [TOOLS / "cuobjdump", "-res-usage", file.name]
        listing = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+)", listing)
    assert usage is not None
    ptx = made.asm["ptx"]
    print(
        kernel.fn.__name__,
        sizes["N"],
        "wgmma" if "wgmma.mma_async" in ptx else "no-wgmma",
        "tma" if "cp.async.bulk.tensor" in ptx else "no-tma",
        "atomics" if re.search(r"\b(atom|red)\.", ptx) else "no-atomics",
        "tf32" if "tf32" in ptx else "no-tf32",
        *usage.groups(),
        flush=True,
    )


driver.set_active(NoGpu())  # type: ignore[arg-type]
launch.start = compile_and_say
for width, places, side in ((256, 6, 9), (64, 6, 9), (256, 12, 5)):  # sums in three parts, in three, in one
    x, w, y = (
        torch.zeros(size, dtype=torch.bfloat16)
        for size in (
            (128, 2 * places + side - 1, 2 * places + side - 1, width),
            (width, side, side, width),
            (128, places, places, width),
        )
    )
    launch.convolved(x, w, torch.zeros(width), 2)
    launch.of_images(y, w, torch.zeros_like(x), 2)
    launch.of_weight(y, x, side, 2)
    launch.of_bias(y)
