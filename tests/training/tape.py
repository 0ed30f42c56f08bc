"""A CUDA graph's stand-in on a CPU, and a watch for operations whose result the host waits for.

Both look at the operations that reach the device, below autograd: those of the forward pass, of the backward pass and
of the optimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
# What gives the host a number, or a tensor whose size depends on values: on a GPU it waits for all that came before.
WAITS = {
    aten._local_scalar_dense,
    aten.item,
    aten.is_nonzero,
    aten.equal,
    aten.allclose,
    aten.nonzero,
    aten.nonzero_static,
    aten.masked_select,
    aten.argwhere,
    aten.bincount,
    aten.repeat_interleave,
    aten.unique_consecutive,
    aten.unique_dim,
    aten._unique,
    aten._unique2,
    aten.histc,
    aten._assert_async,
}
INDEXES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


def tensors_of(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


class NoWaiting(TorchDispatchMode):
    """Fails on an operation that the host waits for, on indexing by a mask, on a copy from one device to another."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        packet = function.overloadpacket
        assert packet not in WAITS, f"{function} waits for the device"
        if packet in INDEXES:
            masks = [t for t in tensors_of(args[1]) if t.dtype in (torch.bool, torch.uint8)]
            assert not masks, f"{function} by a mask waits for the device"
        result = function(*args, **kwargs)
        devices = {t.device.type for t in [*tensors_of((args, kwargs)), *tensors_of(result)]}
        assert len(devices) < 2, f"{function} copies between devices"
        return result


class Tape(TorchDispatchMode):
    """Records operations with the very tensors they took and gave; `replay` does them again on what lies there now.

    As in a CUDA graph, numbers are frozen, memory is not, and random numbers come from the generator as it is then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor] | None]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if any(
            argument.alias_info is not None and argument.alias_info.is_write for argument in function._schema.arguments
        ):
            self.recorded.append((function, args, kwargs, None))  # it writes what it was given
            return result
        memory = {t.untyped_storage()._cdata for t in tensors_of((args, kwargs))}
        made = tensors_of(result)
        if not all(t.untyped_storage()._cdata in memory for t in made):  # else all are views
            self.recorded.append((function, args, kwargs, made))
        return result

    def record(self, work: Callable[[], None]) -> None:
        with self:
            work()

    @torch.no_grad()
    def replay(self) -> None:
        for function, args, kwargs, made in self.recorded:
            again = function(*args, **kwargs)
            if made is not None:
                for old, new in zip(made, tensors_of(again), strict=True):
                    old.copy_(new)
