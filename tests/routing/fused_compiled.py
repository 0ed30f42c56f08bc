"""Compile the fused kernels for compute capability 9.0, which needs no GPU, and say what is in them.

A line a kernel, at the paper's J = 10, D = 16, d = 8: its name, what the code has and has not, then registers a thread,
bytes of them that are kept in memory, and instructions of its longest loop: `_sums` and `_gradients` have an input for
eight images of a warp there, `_of_W` four images for eight inputs and two outputs.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler
from triton.compiler import ASTSource

from capsbench.routing import kernels, launch, vector_kernels

TOOLS = Path(compiler.__file__).parent / "bin"  # NVIDIA's, which Triton's wheel brings
NUMBERS = {"B", "I", "inputs", "count"}
SIZES = {"J": 10, "d": 8, "D": 16, "D2": 16, "IMAGES": 32, "leaky": False, "keep": False, "INPUTS": 8, "OUTPUTS": 2}
KERNELS: list[tuple[Any, dict[str, Any], int]] = [
    (kernels._sums, {}, launch.WARPS),
    (kernels._sums, {"leaky": True, "keep": True}, launch.WARPS),
    (kernels._gradients, {}, launch.WARPS),
    (kernels._of_W, {}, 1),
    (vector_kernels._squash, {"ROWS": 64, "backward": False}, 4),
    (vector_kernels._squash, {"ROWS": 64, "backward": True}, 4),
    (vector_kernels._length, {"ROWS": 64, "backward": False}, 4),
    (vector_kernels._length, {"ROWS": 64, "backward": True}, 4),
]


def compiled(kernel: Any, constants: dict[str, Any], warps: int) -> dict[str, Any]:
    """What the compiler makes of a kernel with arguments as a run has them: addresses are multiples of 16."""
    names = kernel.arg_names
    of = {name: f"constexpr {name}" for name in constants if name in names}
    kinds = {name: "i32" if name in NUMBERS else "fp32" if name == "a" else "*fp32" for name in names if name not in of}
    source = ASTSource(
        kernel,
        {name: "constexpr" if name in of else kinds[name] for name in names},
        {(names.index(name),): constants[name] for name in of},
        {(names.index(name),): [["tt.divisibility", 16]] for name, kind in kinds.items() if kind == "*fp32"},
    )
    return dict(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm)


def tool(name: str, *words: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([TOOLS / name, *words, file.name], capture_output=True, text=True, check=True)
    return done.stdout


def longest_loop(listing: str) -> int:
    """Instructions between a label and the jump back to it, at most; 0 where nothing is repeated."""
    labels: dict[str, int] = {}
    count = longest = 0
    for line in listing.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = count
        elif re.search(r"/\*[0-9a-f]{4,}\*/\s+\S", line):
            count += 1
            if (jump := re.search(r"BRA.*\((\.L_\w+)\)", line)) and jump[1] in labels:
                longest = max(longest, count - labels[jump[1]]) if count - labels[jump[1]] > 1 else longest
    return longest


for kernel, given, warps in KERNELS:
    made = compiled(kernel, SIZES | given, warps)
    ptx = made["ptx"]
    usage = re.search(r"REG:(\d+) STACK:(\d+)", tool("cuobjdump", "-res-usage", cubin=made["cubin"]))
    assert usage is not None
    print(
        kernel.fn.__name__,
        "fma" if "fma.rn.f32" in ptx else "no-fma",
        "atomics" if re.search(r"\b(atom|red)\.", ptx) else "no-atomics",
        "tf32" if "tf32" in ptx else "no-tf32",
        "barriers" if "bar.sync" in ptx else "no-barriers",
        *(usage[1], usage[2], longest_loop(tool("nvdisasm", "-c", cubin=made["cubin"]))),
    )
