"""A routing or a model from outside the package, tried once before it trains, so that its mistakes are told at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from capsbench.errors import CapsbenchError, RoutingError
from capsbench.models.build import build_model
from capsbench.models.capsule_layer import CapsuleLayer, capsule_layers
from capsbench.models.layout import channels_last
from capsbench.models.outside import Outside
from capsbench.models.outside_trial import try_model
from capsbench.models.raised import what_was_raised
from capsbench.plan.custom import forget_others
from capsbench.plan.outside import OutsideSpec, code_named
from capsbench.plan.variants import Spec
from capsbench.routing.resolve import resolve
from capsbench.routing.types import Pass


def build_and_try(spec: Spec, image_size: int, folder: Path) -> nn.Module:
    """The untrained model of a spec whose routing, or which itself, lies in `folder`, tried.

    Raises as `try_routing`, or of a model as `try_model` (capsbench/models/outside_trial.py).
    """
    forget_others(getattr(spec, "routing", ""), folder)
    try:
        model = build_model(spec, image_size, folder)
        if isinstance(model, Outside):
            try_model(model, image_size, folder)
        else:
            try_routing(model, image_size, folder)
    except RoutingError as error:
        raise RoutingError(f"{error}{_hint(spec, folder)}") from error
    except CapsbenchError:
        raise
    except (Exception, SystemExit) as error:  # a module's constructor may do anything
        raise RoutingError(f"{code_named(spec)}: {what_was_raised(error, folder)}{_hint(spec, folder)}") from error
    return model


def _hint(spec: Spec, folder: Path) -> str:
    """What else to say of a routing that failed: a class may be a whole model, which a bare name does not stand for."""
    if isinstance(spec, OutsideSpec) or spec.title != getattr(spec, "routing", ""):
        return ""
    try:
        is_class = isinstance(resolve(spec.title, folder), type)
    except (Exception, SystemExit):  # of the user's file, imported again: it is what was said
        is_class = False
    return f" (A whole model is named by `model: {spec.title}` in a variant of the plan.)" if is_class else ""


def try_routing(model: nn.Module, image_size: int, folder: Path) -> None:
    """Send one small batch through a copy of `model`, forth and back, one of its images black.

    Raises RoutingError, naming the routing and what was expected: shapes or values that do not fit, a gradient that is
    not finite or does not arrive, or whatever the user's code raised, with its line.
    """
    names = _names(model)
    images = torch.rand(3, 1, image_size, image_size)  # [B, 1, H, W]
    images[0] = 0
    try:
        trial = copy.deepcopy(model).train()  # a routing may keep running values; the model's own stay as they are
        layers = capsule_layers(trial)
        for layer in layers:
            layer.check_values = True
        output = channels_last(trial)(images)
        gradients = [_gradients(output.scores.sum() + output.poses.sum(), layer) for layer in layers]
    except CapsbenchError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code does
        raise RoutingError(f"{names}: {what_was_raised(error, folder)}") from error
    for word, value in (("poses", output.poses), ("scores", output.scores)):
        if value.dtype != images.dtype:
            raise RoutingError(
                f"{names}: it must return {word} of {images.dtype}, as its votes are, not {value.dtype}."
            )
    for of_w, *others in gradients:
        if of_w is None:
            raise RoutingError(f"{names}: no gradient comes back through it, so that no W can be learned.")
        if not of_w.isfinite().all():
            raise RoutingError(f"{names}: the gradient that comes back through it is not finite.")
        if not all(gradient is None or gradient.isfinite().all() for gradient in others):
            raise RoutingError(f"{names}: the gradient of a parameter of its own is not finite.")
    if not output.scores.requires_grad:
        raise RoutingError(f"{names}: no gradient comes back through its scores, which the loss is of.")
    try:
        trial = channels_last(copy.deepcopy(model).train())
        for _ in range(2):
            output = trial(images)
            (output.scores.sum() + output.poses.sum()).backward()
    except Exception as error:  # a buffer of the first step with its gradient, say
        raise RoutingError(f"{names}, at a second step of training: {what_was_raised(error, folder)}") from error


def _gradients(total: torch.Tensor, layer: CapsuleLayer) -> list[torch.Tensor | None]:
    """Of W, then of the routing's own parameters that learn; None for what `total` does not depend on."""
    inputs = [layer.weight, *(own for own in layer.routing.parameters() if own.requires_grad)]
    if not total.requires_grad:
        return [None] * len(inputs)
    return list(torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True))


def try_passes(model: nn.Module, image_size: int, folder: Path, numbers: Sequence[int]) -> None:
    """Send one small batch through `model` at each number of passes, with a trace at the last, as its evaluation does.

    What comes out need not be finite. Raises RoutingError, naming the routing: whatever the user's code raised, with
    its line, or a trace that is none.
    """
    names = _names(model)
    images = torch.rand(2, 1, image_size, image_size)  # [B, 1, H, W]
    passes = "its first pass"
    try:
        trial = copy.deepcopy(model).eval()
        with torch.no_grad():
            for number in numbers:
                passes = f"{number} pass" if number == 1 else f"{number} passes"
                output = channels_last(trial)(images, iterations=number, trace=number == numbers[-1])
    except CapsbenchError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code does
        why = f"at {passes}, which its evaluation asks for (`routing_images: 0` leaves that out)"
        raise RoutingError(f"{names}: {why}, {what_was_raised(error, folder)}") from error
    expected = (output.couplings.shape, output.couplings.shape, output.poses.shape)
    trace = () if output.trace is None else output.trace
    told = "one capsbench.routing.Pass(logits [B, I, J], couplings [B, I, J], poses [B, J, D]) a pass"
    for one in trace if isinstance(trace, list | tuple) else [trace]:
        if not isinstance(one, Pass) or tuple(getattr(tensor, "shape", None) for tensor in one) != expected:
            raise RoutingError(f"{names}: its trace must be a list with {told}.")
    obeys = all("iterations" in layer.routing.takes for layer in capsule_layers(model))
    if trace and obeys and len(trace) != numbers[-1] > 1:
        made = "1 entry" if len(trace) == 1 else f"{len(trace)} entries"
        raise RoutingError(f"{names}: its trace has {made} at {passes}; it must be a list with {told}.")


def _names(model: nn.Module) -> str:
    return "routing " + ", ".join(sorted({repr(layer.routing.routing_name) for layer in capsule_layers(model)}))
