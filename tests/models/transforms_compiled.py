"""Compile the transforms' kernels for compute capability 9.0, which needs no GPU, and say what is in them.

A line a kernel, of PrimaryCaps at 28x28 (patches of 10x10): its name and kind, what the code has and has not, then
registers a thread and bytes of them that are kept in memory. Larger patches compile for minutes.
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

from capsbench.models import transform_kernels, transform_launch

TOOLS = Path(compiler.__file__).parent / "bin"  # NVIDIA's, which Triton's wheel brings
CHANNELS = transform_launch.CHANNELS
SIDE = 10
KERNELS = [  # kind, pixels a side of what is transformed, stride
    (kernel, word, kind, size, stride)
    for kind, size, stride in ((0, 10, 2), (1, 5, 2), (2, 6, 1))
    for kernel, word in (
        (transform_kernels._to_frequencies, "given"),
        (transform_kernels._from_frequencies, "wanted"),
    )
]


def compiled(kernel: Any, constants: dict[str, Any]) -> dict[str, Any]:
    """What the compiler makes of a kernel with arguments as a run has them: addresses are multiples of 16."""
    names = kernel.arg_names
    kinds = {name: "*fp32" if name in ("x", "out", "k") else "i32" for name in names}
    kinds |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(
        kernel,
        kinds,
        {(names.index(name),): value for name, value in constants.items()},
        {(n,): [["tt.divisibility", 16]] for n, name in enumerate(names) if kinds[name] == "*fp32" or name == "C"},
    )
    return dict(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": CHANNELS // 32}).asm)


for kernel, word, kind, size, stride in KERNELS:
    cos, sin = transform_launch._tables(SIDE)
    made = compiled(
        kernel, {"stride": stride, word: size, "N": SIDE, "COS": cos, "SIN": sin, "kind": kind, "CHANNELS": CHANNELS}
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made["cubin"])
        file.flush()
        words = [TOOLS / "cuobjdump", "-res-usage", file.name]
        listing = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+)", listing)
    assert usage is not None
    ptx = made["ptx"]
    print(
        kernel.fn.__name__,
        kind,
        "fma" if "fma.rn.f32" in ptx else "no-fma",
        "atomics" if re.search(r"\b(atom|red)\.", ptx) else "no-atomics",
        "tf32" if "tf32" in ptx else "no-tf32",
        "barriers" if "bar.sync" in ptx else "no-barriers",
        *usage.groups(),
        flush=True,
    )
