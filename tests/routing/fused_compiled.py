"""Compile the fused kernels for compute capability 9.0, which needs no GPU, and say what is in them."""

from __future__ import annotations

import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from capsbench.routing import kernels

POINTERS = ("u", "W", "V", "of_s", "parts", "couplings", "of_u", "of_W")
SIZES = {"J": 10, "d": 8, "D": 16, "J2": 16, "D2": 16, "leaky": True}

for kernel, given in (
    (kernels._sums, {"IMAGES": 8, "INPUTS": 32, "backward": False}),
    (kernels._sums, {"IMAGES": 8, "INPUTS": 32, "backward": True}),
    (kernels._of_u_and_W, {"d2": 8}),
):
    constants = {name: value for name, value in {**SIZES, **given}.items() if name in kernel.arg_names}
    kinds = {name: "*fp32" if name in POINTERS else "i32" for name in kernel.arg_names}
    source = ASTSource(
        kernel,
        {name: "constexpr" if name in constants else kind for name, kind in kinds.items()},
        {(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]
    print(
        kernel.fn.__name__,
        "fma" if "fma.rn.f32" in ptx else "no-fma",
        "atomics" if re.search(r"\b(atom|red)\.", ptx) else "no-atomics",
        "tf32" if "tf32" in ptx else "no-tf32",
    )
