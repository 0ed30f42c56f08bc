"""Whether code from outside gives figures that mean something: the same again, and of each image alone."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capsbench.errors import CapsbenchError, RoutingError
from capsbench.models.build import build_model
from capsbench.models.capsule_layer import capsule_layers
from capsbench.models.first_state import refuse_other_seeds, refuse_other_state, refuse_own_seed
from capsbench.models.layout import channels_last
from capsbench.models.outside import Outside
from capsbench.models.outside_trial import try_again
from capsbench.models.raised import what_was_raised
from capsbench.models.steady import refuse_unsaved, refuse_unsteady
from capsbench.models.trial import build_and_try
from capsbench.plan.outside import code_named
from capsbench.plan.variants import Spec

MOVED = 0.1  # at the least, by how much training moves a weight here: a hundred steps of Adam do
SETTINGS = {  # of torch, for the whole process: with another, every row that trains after it would be another
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "the default dtype": torch.get_default_dtype,
    "the default device": torch.get_default_device,
    "deterministic algorithms": torch.get_deterministic_debug_mode,
    "the number of threads": torch.get_num_threads,
    "gradients": torch.is_grad_enabled,
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "TF32": lambda: (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
    "cuDNN": lambda: (
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    ),
}


def build_and_try_twice(spec: Spec, image_size: int, folder: Path) -> nn.Module:
    """The untrained model of a spec with code from `folder`, tried as training and evaluation need it.

    Raises RoutingError as `build_and_try`, `refuse_other_folder`, `refuse_other_settings`, `try_twice` with
    `refuse_unsaved` or `try_again`, `_try_after_inference` and `_try_moved`.
    """
    here, before = Path.cwd(), torch_settings()
    try:
        model = build_and_try(spec, image_size, folder)
    finally:  # what went wrong may have come of a setting, which is then the better word
        refuse_other_folder(here, code_named(spec))
        refuse_other_settings(before, code_named(spec))
    try:
        if isinstance(model, Outside):
            try_again(model, image_size, folder)
        else:
            _try_routing_again(model, spec, image_size, folder)
        _try_after_inference(spec, image_size, folder)
        _try_moved(spec, image_size, folder)
    except CapsbenchError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code does
        again = "tried again, shown one image alone or built anew with the same weights"
        raise RoutingError(f"{code_named(spec)}: {again}, {what_was_raised(error, folder)}") from error
    return model


def _try_after_inference(spec: Spec, image_size: int, folder: Path) -> None:
    """Train a model that was evaluated first, as attacks and the table of costs do. Raises RoutingError, naming it."""
    model = channels_last(_built(spec, image_size, folder, 0))
    images = torch.rand(2, 1, image_size, image_size)  # [B, 1, H, W]
    with torch.inference_mode():
        model.eval()(images)
    try:
        model.train()(images).scores.sum().backward()
    except RuntimeError as error:  # torch's, for a tensor that was made in inference mode
        raise RoutingError(
            f"{code_named(spec)}: trained after it was evaluated, {what_was_raised(error, folder)} Make in the "
            "constructor, as a buffer, what one call keeps for the next."
        ) from error


def _try_moved(spec: Spec, image_size: int, folder: Path) -> None:
    """Show a model whose weights have moved, as by training, a small batch: a gate that starts at 0 hides much.

    Raises as `refuse_unsteady`.
    """
    model = channels_last(_built(spec, image_size, folder, 0))
    images = torch.rand(3, 1, image_size, image_size)  # [B, 1, H, W]
    images *= torch.tensor([0.2, 0.5, 1.0]).view(3, 1, 1, 1)  # noise alone is alike for a network
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                step = MOVED * (1 + torch.rand_like(parameter))
                parameter.copy_(torch.where(parameter == 0, step, parameter * (1 + step)))
    refuse_unsteady(model.eval(), images, "scores", code_named(spec))


def _try_routing_again(model: nn.Module, spec: Spec, image_size: int, folder: Path) -> None:
    """Look at what a routing stores, how it begins, and whether it answers alike. Raises RoutingError, naming it."""
    name = code_named(spec)
    for layer in capsule_layers(model):
        own = layer.routing.routing  # the user's module, if it is one
        refuse_other_state(own if isinstance(own, nn.Module) else layer.routing, name)
    try_twice(model, image_size)
    first, second, other = (_built(spec, image_size, folder, seed) for seed in (0, 0, 1))
    for one, two, three in zip(*map(capsule_layers, (first, second, other)), strict=True):
        refuse_other_seeds(one.routing, two.routing, three.routing, name)
    images = torch.rand(3, 1, image_size, image_size)  # [B, 1, H, W]
    refuse_unsaved(channels_last(copy.deepcopy(model)), channels_last(other), images, "poses", name)


def _built(spec: Spec, image_size: int, folder: Path, seed: int) -> nn.Module:
    """Another model of the spec, its first weights from that seed. Raises RoutingError where it sets another."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(spec, image_size, folder)
        refuse_own_seed(seed, code_named(spec))
    return model


def torch_settings() -> dict[str, Any]:
    """What torch is set to that decides the bits of every computation in this process."""
    return {name: _value_of(name) for name in SETTINGS}


def _value_of(name: str) -> Any:
    try:
        return SETTINGS[name]()
    except RuntimeError as error:  # torch's words for settings that contradict each other
        return str(error)


def refuse_other_settings(before: dict[str, Any], name: str) -> None:
    """Raise RoutingError where torch is set to something else than before code from outside was imported and tried."""
    after = torch_settings()
    changed = [name for name, value in before.items() if after[name] != value]
    if changed:
        raise RoutingError(
            f"{name}: it changes {' and '.join(changed)} for the whole process, so that other rows would "
            f"train with it too (torch: {before[changed[0]]}, now {after[changed[0]]}); leave torch's settings alone."
        )


def refuse_other_folder(before: Path, name: str) -> None:
    """Go back to the folder that the process worked in; raise RoutingError where code from outside has left it."""
    after = Path.cwd()
    if after != before:
        os.chdir(before)
        raise RoutingError(
            f"{name}: it changes the folder of the whole process to {after}, so that others would look for their files "
            "there; begin its own paths with Path(__file__).parent instead."
        )


def try_twice(model: nn.Module, image_size: int) -> None:
    """Show copies of `model`, as it is evaluated, the same small batch twice, and its last image alone.

    Raises RoutingError, naming the routing: it changes its votes in place, which diagnostics read after it; or its
    poses are others the second time (randomness, or state that outlives a call), or beside other images.
    """
    images = torch.rand(3, 1, image_size, image_size)  # [B, 1, H, W]
    trial = channels_last(copy.deepcopy(model).eval())
    changed: list[str] = []
    for layer in capsule_layers(trial):
        _watch(layer.routing, changed)
    name = _names(trial)
    with torch.no_grad():
        trial(images)
    if changed:
        raise RoutingError(f"{name}: it changes its votes in place, which others read after it; change a copy.")
    refuse_unsteady(trial, images, "poses", name)


def _names(model: nn.Module) -> str:
    return f"routing {' and '.join(sorted({repr(layer.routing.routing_name) for layer in capsule_layers(model)}))}"


def _watch(routing: nn.Module, changed: list[str]) -> None:
    """Note in `changed` each call of a routing after which its votes are not what they were."""
    before: list[Tensor] = []
    routing.register_forward_pre_hook(lambda _, given: before.append(given[0].clone()))
    routing.register_forward_hook(
        lambda _, given, __: None if torch.equal(before.pop(), given[0]) else changed.append("votes")
    )
