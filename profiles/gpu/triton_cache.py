"""Compile the slow kernels of config/paper.yaml's CapsNets and CNNs for compute capability 9.0, without a GPU.

    TRITON_CACHE_DIR=/tmp/triton PYTHONPATH=<a folder with Triton> python3.12 profiles/gpu/triton_cache.py

On a lent H100 or H200 the first run compiles for minutes: PrimaryCaps' transforms take two of one core, the CNN's,
of 11 pixels, a prime number, four. Triton finds what this leaves in TRITON_CACHE_DIR if the folder has the same
name there, and its version, Python's and the kernels' source are the same: this script starts Triton's own compiler
through a driver that only names the target. It needs no PyTorch. Where the cache does not fit, kernels are compiled
there as ever; so are those of squash and length, which take a tenth of a second. All other transforms of these models,
of 13 to 20 pixels, go by products of matrices. The sizes below are those of
`routing/launch.py`, `models/transform_launch.py` and, of convolutions in bf16, `models/gpu_tile_launch.py`; those
of their trial stand in `models/gpu_tiles.py`. Where these have changed, the cache does not fit.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
# Of PrimaryCaps at 28x28, the CNN's layers and the first of affNIST's `cnn-valid`: pixels of a patch, a side of one
# phase; then kind, pixels a side and stride of patch, weights and outputs.
TRANSFORMS = {
    10: ((0, 10, 2), (1, 5, 2), (2, 6, 1)),
    11: ((0, 11, 1), (1, 5, 1), (2, 7, 1)),
    12: ((0, 12, 1), (1, 5, 1), (2, 8, 1)),
}
ROUTING = {"J": 10, "d": 8, "D": 16, "D2": 16}


class NoGpu:
    """A driver that knows what to compile for, and can start nothing."""

    def get_current_target(self) -> Any:
        """An H100 or H200, or what else has compute capability 9.0."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        """The default one."""
        return 0


class Kind:
    """What Triton asks a tensor's type for, and keeps by its address: its name and size."""

    def __init__(self, name: str, itemsize: int = 4) -> None:
        self.name, self.itemsize = name, itemsize

    def __str__(self) -> str:
        return f"torch.{self.name}"


KINDS = {kind.name: kind for kind in (Kind("float32"), Kind("int32"), Kind("bfloat16", 2))}


def loaded(name: str) -> ModuleType:
    """A module by its file alone, without its package, which would import torch."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"{name.replace('.', '/')}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(module: str, name: str, tensors: int | list[Any], numbers: list[int], keywords: dict[str, Any]) -> str:
    """Compile one kernel as its first start would, and say how long that took.

    tensors: how many of float32, or for each its type, or its tile where it is a matrix of bf16 that tiles come from.
    """
    from triton.runtime import driver
    from triton.runtime.jit import MockTensor
    from triton.tools.tensor_descriptor import TensorDescriptor

    driver.set_active(NoGpu())
    begun = time.time()
    kinds = ["float32"] * tensors if isinstance(tensors, int) else tensors
    given = [
        MockTensor(KINDS[kind])
        if isinstance(kind, str)
        else TensorDescriptor(MockTensor(KINDS["bfloat16"]), [128, 128], [128, 1], kind)
        for kind in kinds
    ]
    getattr(loaded(module), name).warmup(*given, *numbers, grid=(1,), **keywords)
    return f"{name} {keywords.get('kind', '')} {keywords.get('N', '')}: {time.time() - begun:.0f} s"


def convolutions(
    height: int, width: int, side: int, parts: int, parts_of_weight: int
) -> list[tuple[str, str, Any, list[int], dict[str, Any]]]:
    """A convolution of 256 channels, stride 2, in bf16: as `kernels`, which takes it up."""
    tall, wide = (height - side) // 2 + 1, (width - side) // 2 + 1
    of_sum = {"N": 256, "PARTS": parts, "HAS_BIAS": True}
    both = {"C": 256, "N": 256, "WIDE_X": width, "WIDE": wide, "SIDE": side, "STRIDE": 2, "enable_fp_fusion": True}
    large = {**both, "IMAGES": 128, "BLOCK": 256, "STEP": 64, "STAGES": 3, "num_warps": 8}
    square = {"OUTPUTS": 128, "INPUTS": 128, "STEP": 64, "STAGES": 4, "num_warps": 4}
    sums = {"N": 256, "ROWS": 32, "COLUMNS": 64, "num_warps": 4, "enable_fp_fusion": True}
    out = "float32" if parts > 1 else "bfloat16"
    a, b, kind = [128, 64], [256, 64], "bfloat16" if height == 20 else "float32"  # a trial is of float32
    found: list[tuple[str, Any, list[int], dict[str, Any]]] = [
        ("_forward", [a, b, "float32", out], [128], {**large, **of_sum, "PLACES": tall * wide}),
        ("_of_images", [a, b[::-1], kind, "int32"], [128], {**large, "PIXELS": height * width, "TALL": tall}),
        (
            "_of_weight",
            [a[::-1], a[::-1], "float32"],
            [2],
            {**both, **square, "PLACES": tall * wide, "PARTS": parts_of_weight},
        ),
    ]
    if height == 20:  # the same kernels for all sizes, but for the number of parts
        found.append(("_sums_of_rows", ["bfloat16", "float32"], [4608, 72], sums))
        found.append(("_sums_of_rows", ["float32", "float32"], [64, 64], sums))
    added = {**of_sum, "BLOCK": 1024, "num_warps": 4, "enable_fp_fusion": True}
    found.append(("_added", ["float32", "float32", "bfloat16"], [4608], added))
    if parts_of_weight > 1:
        added = {**added, "PARTS": parts_of_weight, "HAS_BIAS": False}
        found.append(("_added", ["float32", "float32", "float32"], [6400], added))
    return [("capsbench.models.gpu_tile_kernels", *kernel) for kernel in found]


def kernels() -> list[tuple[str, str, Any, list[int], dict[str, Any]]]:
    """The arguments of `compiled` for each kernel; numbers that it does not specialise on may be any."""
    found: list[tuple[str, str, Any, list[int], dict[str, Any]]] = []
    for side, of_side in TRANSFORMS.items():
        angles = [2 * math.pi * k / side for k in range(side)]
        tables = {"COS": tuple(map(math.cos, angles)), "SIN": tuple(map(math.sin, angles))}
        shared = {"N": side, **tables, "CHANNELS": 128, "num_warps": 4, "enable_fp_fusion": True}
        for kind, size, stride in of_side:
            for name, word in (("_to_frequencies", "given"), ("_from_frequencies", "wanted")):
                keywords = {**shared, "kind": kind, word: size, "stride": stride}
                found.append(("capsbench.models.transform_kernels", name, 2, [20, 20, 256, 2, 1, 1, 6], keywords))
    of_routing = {**ROUTING, "enable_fp_fusion": True}
    four = {**of_routing, "IMAGES": 32, "leaky": False, "num_warps": 4}
    one = {**of_routing, "INPUTS": 8, "OUTPUTS": 2, "num_warps": 1}
    for name, tensors, numbers, keywords in (
        ("_sums", 5, [128, 1152, 18], {**four, "keep": False}),
        ("_sums", 5, [128, 1152, 18], {**four, "keep": True}),
        ("_gradients", 8, [64, 1152, 9], four),
        ("_of_W", 6, [64, 1152], one),
    ):
        found.append(("capsbench.routing.kernels", name, tensors, numbers, keywords))
    return found + convolutions(20, 20, 9, 3, 1) + convolutions(8, 10, 5, 16, 5)


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        for done in [pool.submit(compiled, *kernel) for kernel in kernels()]:
            print(done.result(), flush=True)
