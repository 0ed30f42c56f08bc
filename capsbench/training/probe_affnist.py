"""Along affNIST training: accuracy on held-out digits and on affNIST. What `matched` is read off (section 5.2)."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from capsbench.data.affnist import ImageSet
from capsbench.data.affnist_sets import affnist_set, evenly, held_out_set
from capsbench.data.batch import Stream
from capsbench.data.digits import Digits
from capsbench.plan.tasks import AffnistTask
from capsbench.training.scoring import accuracy


class AffnistProbe:
    """Measures both accuracies every `every` steps and after the last one.

    affNIST is looked at each time, near the matched accuracy or not: the curve then serves for any `matched_at`, and
    the evaluations that could be saved, those before a model has learnt the digits, are a handful. What keeps it cheap
    is the number of images.
    """

    def __init__(self, held_out: ImageSet, affnist: ImageSet, every: int) -> None:
        self.held_out, self.affnist, self.every = held_out, affnist, every

    def due(self, step: int, steps: int) -> bool:
        """After every `every`-th step and after the last; not before the first."""
        return step > 0 and (step % self.every == 0 or step == steps)

    def measure(self, model: nn.Module, step: int) -> dict[str, float]:
        """Both accuracies as fractions; `model` is in evaluation mode, gradients are off."""
        return {
            "held_out_accuracy": accuracy(model, self.held_out),
            "affnist_accuracy": accuracy(model, self.affnist),
        }


def make_probe(
    options: AffnistTask,
    digits: Digits,
    stream: Stream,
    batch: int,
    *,
    dataset: str = "mnist",
    folder: str | Path | None = None,
) -> AffnistProbe:
    """The probe of one run.

    Args:
        digits: both splits, on the device; stream, batch: not needed here, steps alone decide when to measure.
        dataset: the name of the digits' data set; folder: the plan's data folder, where official files may lie.

    Raises:
        DataError: fewer digits than are to be held out, or official files that are damaged.
    """
    return AffnistProbe(
        held_out_set(digits.train, options.held_out),
        evenly(
            affnist_set(
                digits.test, dataset=dataset, transforms=options.transforms, count=options.test_images, folder=folder
            ),
            options.probe_images,
        ),
        options.probe_every,
    )
