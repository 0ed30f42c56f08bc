"""Whether a model answers alike: the same images again, one of them alone, and after it was restored."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from capsbench.errors import RoutingError

CLOSE = 1e-3  # of the largest value: sums in another order differ by a millionth, other images by far more
MOVED = 0.01  # at the most, by how much a step of training moves a weight here
What = Literal["poses", "scores"]  # of a model's Output


def refuse_unsteady(model: nn.Module, images: Tensor, what: What, name: str) -> None:
    """Show `model`, as it is evaluated, images [B, 1, H, W] twice, and the last of them alone.

    Raises RoutingError, beginning with `name`: its answers are others the second time (randomness, or state that
    outlives a call), or beside other images.
    """
    with torch.no_grad():
        first, second, alone = (getattr(model(shown), what) for shown in (images, images, images[-1:]))
    if _apart(first, second):
        raise RoutingError(
            f"{name}: shown the same images again, in evaluation, it gives other {what}; randomness, or state that "
            "outlives a call, would make figures that nobody gets again. Leave either out where `self.training` is "
            "false."
        )
    if _apart(first[-1:], alone):
        raise RoutingError(
            f"{name}: in evaluation an image's {what} depend on the other images of its batch, so test digits would "
            "decide each other's classes; look at one image at a time."
        )


def refuse_unsaved(trained: nn.Module, other: nn.Module, images: Tensor, what: What, name: str) -> None:
    """Give `other`, of the same spec, the state of `trained` after steps of training, and show both the same.

    `trained` has seen images and its weights have moved since; `other` has seen none, and the first are others: what
    starts from the first images that come, and is not stored, starts anew in it, as in a run that is evaluated or goes
    on. Raises RoutingError, beginning with `name`: they differ, so it computes with something that a file of weights
    does not hold.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for _ in range(2):
            trained.train()(images)
        for parameter in trained.parameters():
            if parameter.requires_grad:
                parameter.mul_(1 + MOVED * torch.rand_like(parameter))
        other.load_state_dict(trained.state_dict())
        shown = torch.rand_like(images)
        for mode, training in (("evaluation", False), ("training", True)):
            answers = []
            for model in (trained, other):
                torch.manual_seed(0)  # as every step sets it
                answers.append(getattr(model.train(training)(shown), what))
            if not torch.equal(*answers):
                raise RoutingError(
                    f"{name}: in {mode}, another model with its weights and buffers gives other {what}, and so would a "
                    "run that is evaluated or goes on; keep what it computes with in parameters, persistent buffers "
                    "(register_buffer) and nn.ModuleList, and set no seed."
                )


def _apart(a: Tensor, b: Tensor) -> bool:
    return not bool((a - b).abs().max() <= CLOSE * a.abs().max())  # NaN is apart from everything
