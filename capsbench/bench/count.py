"""What a call moves, counted and not timed: the bytes that its operations read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ONLY_WRITE = {torch.ops.aten.copy_, torch.ops.aten.fill_, torch.ops.aten.zero_}  # what was there is not read


class _Bytes(TorchDispatchMode):
    """Adds up the bytes of every operation's tensors, read and written; a view moves nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            given = {word: value for word, value in (kwargs or {}).items() if word != "out"}  # it is returned too
            read = args[1:] if func.overloadpacket in ONLY_WRITE else args
            tensors = [t for t in tree_leaves((read, given, out)) if isinstance(t, Tensor)]
            self.moved += sum(t.numel() * t.element_size() for t in tensors)
        return out


def moved_bytes(call: Callable[[], Any]) -> int:
    """Bytes that the operations of one call read and write, as if nothing stayed in a cache from one to the next.

    What an operation does inside (a convolution that lays its input out anew) is not seen.
    """
    with _Bytes() as counter:
        call()
    return counter.moved
