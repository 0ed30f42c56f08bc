"""Along two-digit training: both accuracies on pairs, at the end of each of the last epochs (Su 2018)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from capsbench.data.batch import DigitSet, Stream
from capsbench.data.digits import Digits
from capsbench.data.pairing import Pairs
from capsbench.data.testing import TEST_SEED, at_most
from capsbench.data.two_digit import Axis, SqueezedPairs, TwoDigitPairs, resized
from capsbench.plan.tasks import TwoDigitTask
from capsbench.plan.variants import Spec
from capsbench.training.exact_set import both_above_half, exactly
from capsbench.training.scoring import batches, device_of, scores_of

AXES: dict[str, Axis] = {
    "56x28": "height",
    "28x56": "width",
}  # condition: the axis on which two digits are put together


class TwoDigitProbe:
    """Measures at the ends of the last `last` epochs: the figure of a CNN swings between epochs.

    An epoch is `size` examples in batches of `batch`. Training that ends inside an epoch is measured at its end, which
    then counts as the last epoch.
    """

    def __init__(self, pairs: dict[str, TwoDigitPairs], *, size: int, batch: int, last: int) -> None:
        self.pairs, self.size, self.batch, self.last = pairs, size, batch, last

    def due(self, step: int, steps: int) -> bool:
        """Whether `step` is the end of one of the last epochs of `steps` steps."""
        epochs = (steps - 1) * self.batch // self.size + 1  # whole ones before the last step, and the last
        ends = (min(steps, self._end(epoch)) for epoch in range(max(1, epochs - self.last + 1), epochs + 1))
        return step in ends

    def measure(self, model: nn.Module, step: int) -> dict[str, float]:
        """The epoch, and both accuracies of both conditions as fractions; gradients are off."""
        epoch = step * self.batch / self.size
        row = {"epoch": float(int(epoch)) if self._end(int(epoch)) == step else epoch}
        for condition, pairs in self.pairs.items():
            top2, both = accuracies(model, pairs)
            row |= {f"{condition}.top2_accuracy": top2, f"{condition}.both_above_half_accuracy": both}
        return row

    def _end(self, epoch: int) -> int:
        """The step after which `epoch` epochs have been seen."""
        return -(-epoch * self.size // self.batch)


def make_probe(options: TwoDigitTask, digits: Digits, stream: Stream, batch: int) -> TwoDigitProbe:
    """The probe of one run. Raises DataError when the test digits do not suffice for the pairs."""
    return TwoDigitProbe(make_pairs(options, digits.test), size=stream.size, batch=batch, last=options.last_epochs)


def make_pairs(options: TwoDigitTask, test: DigitSet) -> dict[str, TwoDigitPairs]:
    """The test pairs of each condition: the same digits in both. Raises DataError when the digits do not suffice."""
    digits = at_most(test, options.test_images)
    kind = SqueezedPairs if options.squeezed else TwoDigitPairs
    return {condition: kind(digits, seed=TEST_SEED, size=options.pairs, axis=axis) for condition, axis in AXES.items()}


def scored_pairs(model: nn.Module, pairs: TwoDigitPairs) -> Iterator[tuple[Pairs, Tensor]]:
    """Every pair in batches, with the model's scores [n, 10]; resized to 28x28 for a model of a fixed size."""
    for start, stop in batches(model, pairs.size):
        made = pairs.make(torch.arange(start, stop, device=device_of(model)))
        shown = made if takes_any_size(model.spec) else resized(made)  # type: ignore[arg-type]
        yield shown, scores_of(model, shown.images)


def accuracies(model: nn.Module, pairs: TwoDigitPairs) -> tuple[float, float]:
    """The shares of pairs, in [0, 1], whose set is exactly right, and whose second score is above 0.5 as well."""
    right = torch.zeros(2, dtype=torch.int64, device=device_of(model))
    for shown, scores in scored_pairs(model, pairs):
        right += torch.stack([exactly(scores, shown.labels), both_above_half(scores, shown.labels)]).sum(1)
    top2, both = (right.double() / pairs.size).tolist()
    return top2, both


def takes_any_size(spec: Spec) -> bool:
    """Whether the variant's model, built for 28x28, can look at larger images as well."""
    return spec.model in ("two-digit", "resnet") or getattr(spec, "head", None) == "average"  # type: ignore[attr-defined]
