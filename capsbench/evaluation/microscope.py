"""Routing under the microscope: couplings of a trained model, and what more or fewer passes do to its answers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from capsbench.data.batch import DigitSet
from capsbench.data.mnist import test_images
from capsbench.evaluation.condition import Condition
from capsbench.evaluation.couplings import CouplingStatistics
from capsbench.plan.tasks import CLASSES
from capsbench.plan.variants import Spec
from capsbench.routing.energy import energy
from capsbench.routing.layer import RoutingLayer
from capsbench.routing.squash import length
from capsbench.routing.types import Pass
from capsbench.training.losses import probabilities

ITERATIONS = (1, 2, 3, 5, 10, 30, 100)  # passes at test time, whatever the model was trained with
BATCH = {"cpu": 20, "cuda": 200}  # images at once: the trace of 100 passes takes 9 MB an image at the paper's size
DEAD = 0.01  # of the longest lower capsule seen: one that never gets as long says nothing

Metrics = dict[str, tuple[float | None, str]]


class Watched:
    """What a capsule layer's routing is given while the model answers a batch, be it in several calls.

    Votes [B, I, J, D], children [B, I, d].
    """

    def __init__(self, layer: RoutingLayer) -> None:
        self.layer = layer
        self.votes: list[Tensor] = []
        self.children: list[Tensor] = []
        self.handle = layer.register_forward_pre_hook(self._see, with_kwargs=True)

    def _see(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.votes.append(args[0])
        if kwargs.get("children") is not None:
            self.children.append(kwargs["children"])

    def forget(self) -> None:
        """Before the model's next call."""
        self.votes, self.children = [], []

    def energy(self, couplings: Tensor) -> Tensor:
        """F of couplings [B, I, J] on the votes seen: [B] float64."""
        bias = self.layer.bias if "bias" in self.layer.trained else None
        return energy(torch.cat(self.votes), couplings, bias)  # type: ignore[arg-type]


class AtPasses:
    """What was seen at one number of passes."""

    def __init__(self) -> None:
        self.couplings = CouplingStatistics(CLASSES)
        self.answers: list[Tensor] = []
        self.energies: list[Tensor] = []


def iterates(layer: RoutingLayer) -> bool:
    """Whether a routing makes as many passes as it is told: it takes `iterations`, and not with a default of one."""
    call = layer.routing.forward if isinstance(layer.routing, nn.Module) else layer.routing
    taken = inspect.signature(call).parameters.get("iterations")
    return taken is not None and taken.default != 1


def passes_of(model: nn.Module, spec: Spec) -> list[int]:
    """The numbers of passes at which a trained model is looked at: ITERATIONS and its own, or the one that it makes."""
    layers = [module for module in model.modules() if isinstance(module, RoutingLayer)]
    if layers and not iterates(layers[0]):
        return [1]
    return sorted({*ITERATIONS, _own(spec)})  # matrix capsules route without a layer, and make all their passes


def _own(spec: Spec) -> int:
    return int(spec.iterations)  # type: ignore[attr-defined]


def routing_condition(model: nn.Module, spec: Spec, digits: DigitSet) -> Condition:
    """The condition `routing`: coupling statistics at the trained number of passes, answers at all of ITERATIONS.

    A routing of one pass has the former alone. What a routing does not show is left out: without votes (matrix
    capsules) there is no energy, without a trace no change of logits; a value that is not finite is None.
    `digits` [N] on the model's device; gradients are the caller's business.

    Frames: `iterations` (iterations, trained, error, flips, entropy, hard, spread, energy); `logits` (iteration,
    change), the mean |difference| of the logits to those of the pass before.
    """
    layers = [module for module in model.modules() if isinstance(module, RoutingLayer)]
    watched = Watched(layers[0]) if layers else None
    numbers = passes_of(model, spec)
    own = _own(spec) if len(numbers) > 1 else numbers[0]
    seen = {r: AtPasses() for r in numbers}
    changes: list[Tensor] = []
    longest: Tensor | None = None
    try:
        for images, labels, shuffled in _batches(model, digits):
            for r in numbers:
                if watched is not None:
                    watched.forget()
                output = model(images, iterations=r, trace=r == numbers[-1])
                at = seen[r]
                at.answers.append(_answers(spec, output.scores))
                at.couplings.add(output.couplings, labels, shuffled)
                if watched is not None:
                    at.energies.append(watched.energy(output.couplings))
            if output.trace is not None and len(output.trace) > 1:
                changes.append(_changes(output.trace))
            if watched is not None and watched.children:
                now = length(torch.cat(watched.children)).amax(0)  # [I]
                longest = now if longest is None else longest.maximum(now)
    finally:
        if watched is not None:
            watched.handle.remove()
    table = _table(seen, own, digits.labels)
    metrics = _metrics(seen[own].couplings, table, own)
    if longest is not None:
        metrics["dead_capsules"] = (_finite(100 * float((longest < DEAD * longest.max()).double().mean())), "%")
    frames = {"iterations": table}
    if changes:
        change = torch.cat(changes).mean(0).tolist()  # [passes - 1]
        frames["logits"] = pd.DataFrame({"iteration": range(2, len(change) + 2), "change": change})
    return Condition("routing", len(digits.labels), metrics, frames=frames)


def _batches(model: nn.Module, digits: DigitSet) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Images [n, 1, 28, 28], labels [n], and as many of the same labels in another order."""
    order = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(0))
    shuffled = digits.labels[order.to(digits.labels.device)]  # [N]
    count, batch = len(digits.labels), BATCH[next(model.parameters()).device.type]
    for start in range(0, count, batch):
        stop = min(start + batch, count)
        yield test_images(digits, start, stop), digits.labels[start:stop], shuffled[start:stop]


def _answers(spec: Spec, scores: Tensor) -> Tensor:
    """The class of each image [B] int64; -1, never right, where its scores are not finite."""
    p = probabilities(spec, scores.float())  # [B, K]
    return torch.where(p.isfinite().all(1), p.argmax(1), -1)


def _changes(trace: tuple[Pass, ...]) -> Tensor:
    """Mean over i and j of |b_ij - b_ij of the pass before|, for each pass but the first: [B, passes - 1] float64."""
    pairs = zip(trace[1:], trace[:-1], strict=True)
    return torch.stack([(new.logits - old.logits).abs().double().mean((1, 2)) for new, old in pairs], 1)


def _table(seen: dict[int, AtPasses], own: int, labels: Tensor) -> pd.DataFrame:
    """One row for each number of passes; percents for error, flips and hard."""
    kept = torch.cat(seen[own].answers)  # [N]
    rows = []
    for r, at in seen.items():
        answers = torch.cat(at.answers)  # [N]
        rows.append(
            {
                "iterations": r,
                "trained": int(r == own),
                "error": 100 * float((answers != labels).double().mean()),
                "flips": 100 * float((answers != kept).double().mean()),
                "entropy": at.couplings.entropy(),
                "hard": 100 * at.couplings.hard(),
                "spread": at.couplings.spread(),
                "energy": float(torch.cat(at.energies).mean()) if at.energies else math.nan,
            }
        )
    return pd.DataFrame(rows)


def _metrics(couplings: CouplingStatistics, table: pd.DataFrame, own: int) -> Metrics:
    """The statistics at the trained number of passes, then error, flips, entropy and energy at each number."""
    metrics: Metrics = {
        "coupling_entropy": (_finite(couplings.entropy()), ""),
        "hard_fraction": (_finite(100 * couplings.hard()), "%"),
        "coupling_spread": (_finite(couplings.spread()), ""),
        "coupling_spread_within": (_finite(couplings.spread_within()), ""),
        "mutual_information": (_finite(couplings.mutual_information()), "bits"),
        "error": (_finite(table.loc[table["iterations"] == own, "error"].item()), "%"),
    }
    has_energy = bool(table["energy"].notna().any())
    if has_energy:
        metrics["energy"] = (_finite(table.loc[table["iterations"] == own, "energy"].item()), "")
    if len(table) > 1:
        for row in table.to_dict("records"):
            r = int(row["iterations"])
            for name, unit in (("error", "%"), ("flips", "%"), ("entropy", ""), ("energy", "")):
                if name != "energy" or has_energy:
                    metrics[f"{name}_r{r}"] = (_finite(float(row[name])), unit)
    return metrics


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
