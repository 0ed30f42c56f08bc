"""Count what a GPU would be asked to start for one training step of the paper's CapsNet, and for one batch.

Torch's operators that compute or copy, and the kernels of ours, which Triton's interpreter runs here (what it computes
with itself is not counted): with plain routing and with fused routing. A convolution counts as one each way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import interpreter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "training"))
from small_steps import small_step

from capsbench.training.fusing import set_routing

VIEWS = """
view t transpose permute expand select slice unsqueeze squeeze detach alias as_strided unfold split unbind empty
empty_like new_empty empty_strided new_empty_strided _unsafe_view _reshape_alias lift_fresh is_same_size
"""


class Count(TorchDispatchMode):
    """How many operators that are no views, and kernels of ours, are started while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.kernels = self.inside = 0

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        name = operator.overloadpacket.__name__
        starts = name not in VIEWS.split() and not name.startswith("_record_function")
        self.operators += starts and not self.inside
        return operator(*arguments, **(keywords or {}))


def counted(work: Callable[[], object]) -> tuple[int, int]:
    """Operators and kernels of ours that `work` starts."""
    count, start = Count(), interpreter.GridExecutor.__call__

    def kernel(*arguments: Any, **keywords: Any) -> Any:
        count.kernels += 1
        count.inside += 1
        try:
            return start(*arguments, **keywords)
        finally:
            count.inside -= 1

    interpreter.GridExecutor.__call__ = kernel
    try:
        with count:
            work()
    finally:
        interpreter.GridExecutor.__call__ = start
    return count.operators, count.kernels


step = small_step("capsnet-r3-recon")
torch.manual_seed(0)
step(0, 1e-3)  # the optimiser makes its state
for fused in (False, True):
    set_routing(step.model, fused)
    batch = step.stream.batch(1)
    print("step", "fused" if fused else "plain", *counted(lambda given=batch: step.train(given)))
print("batch", *counted(lambda: step.stream.batch(2)))
