"""The capsule layer alone, forward and backward: with its votes in memory, and rebuilt where they are used."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from capsbench.bench.grow import PIXELS, has_capsules, places_of
from capsbench.bench.measure import Contender, Say, race
from capsbench.evaluation.memory import peak_bytes
from capsbench.models.capsule_layer import CapsuleLayer
from capsbench.plan import Cell
from capsbench.plan.task import CLASSES
from capsbench.plan.variants import CapsNetSpec
from capsbench.routing.squash import squash
from capsbench.training.capture import CudaGraph
from capsbench.training.device import give_memory_back
from capsbench.training.fusing import why_not_fused
from capsbench.training.what_to_lower import says_what_to_lower

IN_MEMORY, FUSED = "votes in memory", "fused"


class _BothWays:
    """Poses of a layer [B, J, D] and the gradients of its inputs and parameters, float32."""

    def __init__(self, layer: CapsuleLayer, batch: int, inputs: int, fused: bool) -> None:
        draw = torch.Generator().manual_seed(0)
        _, outputs, d, dim = layer.weight.shape
        u = squash(torch.randn(batch, inputs, d, generator=draw))
        self.layer, self.fused = layer, fused
        self.u = u.to(layer.weight.device).requires_grad_()
        self.of_poses = torch.randn(batch, outputs, dim, generator=draw).to(self.u)

    def __call__(self) -> tuple[Tensor, ...]:
        self.layer.fused = self.fused
        poses = self.layer(self.u).poses
        return torch.autograd.grad(poses, [self.u, *self.layer.parameters()], self.of_poses)


def routing_alone(
    cell: Cell,
    batch: int,
    rounds: int,
    device: torch.device,
    say: Say,
    keep: Callable[[list[dict[str, Any]]], None] = lambda so_far: None,
) -> list[dict[str, Any]]:
    """Forward and backward through a cell's capsule layer, for the input capsules of images of 22 to 40 pixels.

    Returns a row for each number of inputs and each way: name (IN_MEMORY or FUSED), captured (whether as one CUDA
    graph, as runs do; on a GPU both ways are timed), inputs, batch, median seconds and all of them, bytes held at most
    beside the arguments (None of a graph's), and `times` and `less_memory`, in relation to IN_MEMORY. `keep` is called
    after each size with the rows so far. Where the layer cannot be fused `say` gets the reason. Raises CapsbenchError
    for a cell without such a layer, and as `says_what_to_lower`.
    """
    spec, found = has_capsules(cell), []
    for pixels in PIXELS:
        words = f"routing of {spec.primary_types * places_of(spec, pixels)} inputs"
        with says_what_to_lower(f"bench: {words} at batch {batch:,}", "choose a smaller --batch"):
            found += _of_one_size(spec, pixels, batch, rounds, device, say)
        say(words)
        keep(found)
    return found


def _of_one_size(
    spec: CapsNetSpec, pixels: int, batch: int, rounds: int, device: torch.device, say: Say
) -> list[dict[str, Any]]:
    places = places_of(spec, pixels)
    layer = CapsuleLayer(
        types=spec.primary_types,
        places=places,
        child_dim=spec.primary_dim,
        outputs=CLASSES,
        dim=spec.dim,
        options=spec,
    )
    torch.manual_seed(0)
    torch.nn.init.normal_(layer.weight, std=0.1)
    layer.to(device)
    inputs = spec.primary_types * places
    reason = why_not_fused(layer) if layer.fusible() else "is not made for it"
    if reason is not None:
        say(f"Routing of {inputs} inputs is timed with its votes in memory alone, since fused routing {reason}.")
    give_memory_back()
    timed: list[tuple[dict[str, Any], Contender]] = []
    for fused in (False, True) if reason is None else (False,):
        call = _BothWays(layer, batch, inputs, fused)
        about = {"name": FUSED if fused else IN_MEMORY, "inputs": inputs, "batch": batch}
        call()  # work space of libraries and kernels that compile do not count
        timed.append(({**about, "captured": False, "peak_bytes": peak_bytes(call, device)}, _contender(call, batch)))
        if device.type == "cuda":
            graph = CudaGraph(device)
            graph.record(call)  # type: ignore[arg-type]  # what it returns is not looked at
            timed.append(({**about, "captured": True, "peak_bytes": None}, _contender(graph.replay, batch)))
    race([contender for _, contender in timed], rounds, device, lambda _: None)
    rows = [about | _seconds(contender) for about, contender in timed]
    for row in rows:
        plain = next(r for r in rows if r["name"] == IN_MEMORY and r["captured"] == row["captured"])
        row["times"] = plain["seconds"] / row["seconds"]
        row["less_memory"] = None if row["peak_bytes"] is None else plain["peak_bytes"] / row["peak_bytes"]
    return rows


def _contender(call: Any, batch: int) -> Contender:
    return Contender("routing", "training", "float32", batch, call)


def _seconds(contender: Contender) -> dict[str, Any]:
    return {"seconds": statistics.median(contender.seconds), "all_seconds": contender.seconds}
