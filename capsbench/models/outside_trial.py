"""A model from outside the package, tried before it trains: what a run, its file of weights and its figures need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from capsbench.errors import CapsbenchError, RoutingError
from capsbench.models.first_state import refuse_other_seeds, refuse_other_state, refuse_own_seed
from capsbench.models.layout import channels_last
from capsbench.models.outside import Outside
from capsbench.models.raised import what_was_raised
from capsbench.models.steady import refuse_unsaved, refuse_unsteady

BOUNDED = ("margin", "spread", "nll")  # losses of lengths, activations and probabilities
BLOCK = 16  # channels that oneDNN takes at once with AVX-512 (8 with AVX2)


def try_model(model: Outside, image_size: int, folder: Path) -> None:
    """Send a small batch, one of its images black, through models of this spec and weights, forth and back.

    Raises RoutingError, naming the model and what was expected: shapes or values that do not fit its loss, a gradient
    that is not finite or does not arrive, randomness that is not torch's, state that a file of weights does not hold,
    or whatever the user's code raised.
    """
    size = f"{image_size}x{image_size}"
    try:
        with torch.random.fork_rng(devices=[]):
            _try(model, image_size, folder)
            for high, wide in ((2, 1), (1, 2)) if model.spec.any_size else ():  # two digits
                size = f"{high * image_size}x{wide * image_size}"
                with torch.no_grad():
                    shown = torch.rand(2, 1, high * image_size, wide * image_size)
                    _check_values(model, _like(model, image_size, folder).eval()(shown).scores)
    except CapsbenchError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code does
        raise RoutingError(f"{model.name}, shown images of {size}: {what_was_raised(error, folder)}") from error


def try_again(model: Outside, image_size: int, folder: Path) -> None:
    """Show a model of this spec and weights, as it is evaluated, a small batch. Raises as `refuse_unsteady`."""
    images = torch.rand(3, 1, image_size, image_size)  # [B, 1, H, W]
    refuse_unsteady(_like(model, image_size, folder).eval(), images, "scores", model.name)


def _try(model: Outside, image_size: int, folder: Path) -> None:
    refuse_other_state(model.net, model.name)
    _refuse_overrun(model)
    if not any(parameter.requires_grad for parameter in model.net.parameters()):
        raise RoutingError(f"{model.name}: it has no parameter that learns.")
    first, second, other = (_built(model, image_size, folder, seed) for seed in (0, 0, 1))
    refuse_other_seeds(first.net, second.net, other.net, model.name)
    learned = [name for name, parameter in model.net.named_parameters() if parameter.requires_grad]
    images = torch.rand(3, 1, image_size, image_size)  # [B, 1, H, W]
    images[0] = 0
    shown = images.clone()
    for trial in (first, second):
        trial.load_state_dict(model.state_dict())
    scores, gradients = _in_training(first, shown, learned)
    if not torch.equal(images, shown):
        raise RoutingError(f"{model.name}: it changes its images in place, which others read after it; change a copy.")
    _check_values(model, scores)
    for name, gradient in zip(learned, gradients, strict=True):
        if gradient is None:
            raise RoutingError(
                f"{model.name}: no gradient comes back to its parameter {name}, so it cannot be learned; use it, or "
                "freeze it with requires_grad_(False)."
            )
        if not gradient.isfinite().all():
            raise RoutingError(f"{model.name}: the gradient of its parameter {name} is not finite.")
    if not torch.equal(scores, _in_training(second, shown, learned)[0]):
        raise RoutingError(
            f"{model.name}: in training, from the same seed of torch, it gives other scores the second time; take "
            "random numbers from torch's own generator alone, and keep no state outside the module."
        )
    if made := sorted(first.state_dict().keys() - model.state_dict().keys()):
        raise RoutingError(
            f"{model.name}: it makes {made[0].removeprefix('net.')} when it first sees images, which is too late to be "
            "learned; make it in the constructor."
        )
    try:
        _in_training(second, shown, learned)
    except Exception as error:
        raise RoutingError(f"{model.name}, at a second step of training: {what_was_raised(error, folder)}") from error
    with torch.no_grad():
        _check_values(model, first.eval()(shown).scores)
    refuse_unsaved(first, other, shown, "scores", model.name)


def _refuse_overrun(model: Outside) -> None:
    """Raise RoutingError for a convolution whose gradient, on a CPU, writes past its memory: the process may die of it.

    It is one of 1x1 with a stride and fewer input channels than a block, channels innermost, as all convolutions train
    here (oneDNN, issue 6035, not mended in the PyTorch of the lock file). With one channel both layouts are the same.
    """
    for name, module in model.net.named_modules():
        if not isinstance(module, nn.Conv2d) or module.kernel_size != (1, 1) or max(module.stride) == 1:
            continue
        if 1 < module.in_channels < BLOCK and module.groups == 1 and module.padding in ((0, 0), "valid"):
            high, wide = module.stride
            raise RoutingError(
                f"{model.name}: {name} is a 1x1 convolution of {module.in_channels} channels with a stride, whose "
                f"gradient on a CPU damages memory under {BLOCK} channels; give it x[:, :, ::{high}, ::{wide}] and no "
                "stride, which is the same."
            )


def _check_values(model: Outside, scores: Tensor) -> None:
    """Raise RoutingError for scores that are not what the loss takes."""
    if scores.dtype != torch.float32:
        raise RoutingError(f"{model.name}: it must return scores of torch.float32, not {scores.dtype}.")
    if not scores.isfinite().all():
        raise RoutingError(f"{model.name}: its scores are not finite.")
    loss = model.spec.loss
    if loss in BOUNDED and not bool(((scores >= 0) & (scores <= 1 + 1e-6)).all()):
        raise RoutingError(
            f"{model.name}: loss {loss} takes scores in [0, 1], not {float(scores.min()):.3g} to "
            f"{float(scores.max()):.3g}; return lengths or probabilities, or choose a cross entropy, of logits."
        )
    if loss == "nll" and bool(((scores.sum(1) - 1).abs() > 1e-3).any()):
        raise RoutingError(f"{model.name}: loss nll takes scores that sum to 1, not to {float(scores[0].sum()):.3g}.")


def _in_training(trial: Outside, images: Tensor, learned: Sequence[str]) -> tuple[Tensor, Sequence[Tensor | None]]:
    """What `trial` answers in training, and the gradients of its parameters; None where none arrives."""
    torch.manual_seed(0)  # as every step sets it
    output = trial.train()(images)
    total = output.scores.sum()
    if trial.decoder is not None and output.poses is not None:
        if output.poses.dtype != torch.float32:
            raise RoutingError(f"{trial.name}: it must return poses of torch.float32, not {output.poses.dtype}.")
        total = total + output.poses.sum()
    inputs = [trial.net.get_parameter(name) for name in learned]
    if not total.requires_grad:
        return output.scores.detach(), [None] * len(inputs)
    return output.scores.detach(), torch.autograd.grad(total, inputs, allow_unused=True)


def _built(model: Outside, image_size: int, folder: Path, seed: int) -> Outside:
    """Another model of the same spec, its first weights from that seed. Raises RoutingError where it sets another."""
    torch.manual_seed(seed)
    other = channels_last(Outside(model.spec, image_size, folder))
    refuse_own_seed(seed, model.name)
    return other


def _like(model: Outside, image_size: int, folder: Path) -> Outside:
    """Another model of the same spec and state."""
    with torch.random.fork_rng(devices=[]):
        other = _built(model, image_size, folder, 0)
    other.load_state_dict(model.state_dict())
    return other
