"""torch's compiler, which no command needs, left unimported: its import takes nearly as long as torch's own."""

from __future__ import annotations

import sys
from typing import Any


def leave_out_compiler() -> None:
    """Let Adam and torch's counter of FLOPs work without importing torch._dynamo, for what only compiled code needs.

    Some of their methods import it when first called, to have it leave them alone (`_disable_dynamo`), and each step of
    Adam to say where it must not look across (`graph_break`): neither does anything where nothing is compiled. Call it
    before the first optimiser. The numbers are the same (tests/cli/test_cli_compiler.py). It does nothing where the
    compiler is there already, and in a torch that is made otherwise finds nothing to leave out: time is lost then.
    """
    if "torch._dynamo" in sys.modules:
        return
    import torch
    from torch.optim import Adam, Optimizer, optimizer
    from torch.utils import flop_counter

    asks: Any = getattr(torch, "_disable_dynamo", None)
    for owner in (Optimizer, getattr(flop_counter, "_FlopCounterMode", None)):
        for method in vars(owner).values() if asks and owner else ():
            if _code(method) is _code(asks(len)):
                method.__wrapped__.__dict__.setdefault("__dynamo_disable", method.__wrapped__)  # as once it has asked
    says: Any = getattr(optimizer, "_use_grad_for_differentiable", None)
    step: Any = Adam.step
    if says and _code(step) is _code(says(len)):
        Adam.step = torch.no_grad()(step.__wrapped__)  # type: ignore[method-assign]


def _code(function: object) -> object:
    """A function's code, which all that one decorator returns have in common; what has none is like nothing else."""
    return getattr(function, "__code__", object())
