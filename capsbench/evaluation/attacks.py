"""White-box attacks on MNIST: how many answers stay right when every pixel moves a little in the worst direction.

All variants are attacked through one objective, the true score less the best other one's: their losses differ, and a
cross entropy of lengths would not be one (Carlini and Wagner 2017, section V, attack logits so).
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor, nn

from capsbench.data.batch import DigitSet
from capsbench.data.mnist import test_images
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.predict import margins
from capsbench.training.scoring import device_of

EPSILONS = (0.05, 0.1, 0.2, 0.3)  # how far a pixel in [0, 1] may move; Madry et al. 2018 have 0.3 on MNIST
STEPS = 20  # of projected gradient descent
BATCH = {"cpu": 125, "cuda": 250}  # images at once: votes and their gradients are held


def attacked_condition(model: nn.Module, digits: DigitSet) -> Condition:
    """`attacked`: the error under both attacks at each of EPSILONS, and without one, on all of `digits`.

    `masked` is the share of images whose gradient is 0 everywhere, in percent: there the attacks move nothing, and that
    the answer stays is no sign that the model is robust (Athalye et al. 2018).
    """
    count = len(digits.labels)
    wrong: dict[tuple[str, float], int] = {}
    masked = 0
    # evaluation runs in inference mode, which keeps no gradients
    with torch.inference_mode(False), torch.enable_grad():
        for start in range(0, count, BATCH[device_of(model).type]):
            stop = min(start + BATCH[device_of(model).type], count)
            images, labels = test_images(digits, start, stop).clone(), digits.labels[start:stop].clone()
            direction = uphill(model, images, labels)
            masked += int((direction == 0).flatten(1).all(1).sum())
            found = {("none", 0.0): images}
            for epsilon in EPSILONS:
                found["fgsm", epsilon] = (images + epsilon * direction).clamp(0, 1)
                found["pgd", epsilon] = projected_gradient(model, images, labels, epsilon)
            for key, moved in found.items():
                wrong[key] = wrong.get(key, 0) + errors(model, moved, labels)
    rows = [(attack, epsilon, 100 * missed / count, count) for (attack, epsilon), missed in wrong.items()]
    metrics: dict[str, tuple[float | None, str]] = {"error": (rows[0][2], "%")}
    for attack, epsilon, error, _ in rows[1:]:
        metrics[f"{attack}_error_e{100 * epsilon:.0f}"] = (error, "%")
    metrics["masked"] = (100 * masked / count, "%")
    frame = pd.DataFrame(rows, columns=["attack", "epsilon", "error", "images"])
    return Condition("attacked", count, metrics, frames={"attacks": frame})


def uphill(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The sign in {-1, 0, 1} of each pixel's gradient towards a wrong answer: [B, 1, H, W], of images of that shape.

    A step along it is the fast gradient sign method (Goodfellow et al. 2015, section 4).
    """
    images = images.detach().requires_grad_()
    lead = margins(model(images).scores.float(), labels)  # [B]: the true score less the best other one's
    (gradient,) = torch.autograd.grad(-lead.sum(), images)
    return gradient.sign()


def projected_gradient(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """STEPS steps of 2.5 epsilon / STEPS uphill, each pixel kept within `epsilon` of `images` and in [0, 1].

    Madry et al. 2018, section 2.1, from the image itself and not from a random place beside it.
    """
    moved = images
    for _ in range(STEPS):
        moved = moved + 2.5 * epsilon / STEPS * uphill(model, moved, labels)
        moved = torch.minimum(torch.maximum(moved, images - epsilon), images + epsilon).clamp(0, 1)
    return moved


@torch.no_grad()
def errors(model: nn.Module, images: Tensor, labels: Tensor) -> int:
    """How many of images [B, 1, H, W] are not given their label [B]."""
    return int((model(images).scores.argmax(1) != labels).sum())
