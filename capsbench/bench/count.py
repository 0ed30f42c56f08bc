"""What a call computes and moves, counted and not timed: FLOPs, and bytes that its operations read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


def flops(call: Callable[[], Any]) -> int:
    """FLOPs of one call by torch's counter: matrix products and convolutions, two a multiply-add."""
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


class _Bytes(TorchDispatchMode):
    """Adds up the bytes of every operation's tensors, read and written; a view moves nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor)]
            self.moved += sum(t.numel() * t.element_size() for t in tensors)
        return out


def moved_bytes(call: Callable[[], Any]) -> int:
    """Bytes that the operations of one call read and write, each as if nothing stayed in a cache.

    An upper bound of the traffic with memory, and so a lower bound of FLOPs a byte.
    """
    with _Bytes() as counter:
        call()
    return counter.moved
