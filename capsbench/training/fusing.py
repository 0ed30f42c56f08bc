"""Whether a run routes without votes in memory: decided once a run, after the kernels were tried on its device.

Evaluation never does: it takes the plain way on every device, so that what it says depends on the weights alone and not
on what a machine's Triton can do, and it has no gradient for which votes would be kept. What is measured along
training goes as training does.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from capsbench.models.capsule_layer import CapsuleLayer, capsule_layers
from capsbench.routing import cpu_fused
from capsbench.routing.fused import fused_squash, runs
from capsbench.routing.squash import squash

# Float32 against float64, of the largest entry: rounding is some 1e-6, TF32 or a mistake is 1e-3 and more.
TOLERANCE = 1e-4
# Images and inputs that it is tried with: few of both; and so many that each kernel has several blocks of images and of
# inputs, several inputs a block and fewer in the last one, and a second slice of images.
TRIED = ((5, 37), (66, 262))


def choose_routing(model: nn.Module, device: torch.device, say: Callable[[str], None]) -> dict[str, str]:
    """Set a model's capsule layers to fused routing where it runs; what stands in a run's `resolved`.

    `{"routing": "fused"}` or `{"routing": "plain"}` for a model that has layers to fuse, else nothing. Where the
    kernels do not compile, or differ from the plain way in float64, `say` gets one sentence, and it is plain.

    Ask on a GPU, and on a CPU for a run in bf16 alone: what float32 comes to there is published, and keeps its bits.
    """
    layers = [layer for layer in capsule_layers(model) if layer.fusible()]
    if device.type not in ("cpu", "cuda") or not layers:
        return {}
    reason = next((reason for layer in layers if (reason := why_not_fused(layer)) is not None), None)
    if reason is not None:
        say(f"Routing keeps its votes in memory, since fused routing {reason}.")
    set_routing(model, reason is None)
    return {"routing": "plain" if reason is not None else "fused"}


def set_routing(model: nn.Module, fused: bool) -> None:
    """Let all capsule layers of a model route fused, or plainly."""
    for layer in capsule_layers(model):
        layer.fused = fused


@contextlib.contextmanager
def plain_routing(model: nn.Module) -> Iterator[None]:
    """A model with plain routing for a while: torch's counters see no FLOPs and no bytes in a kernel of ours."""
    before = [(layer, layer.fused) for layer in capsule_layers(model)]
    set_routing(model, False)
    try:
        yield
    finally:
        for layer, fused in before:
            layer.fused = fused


def why_not_fused(layer: CapsuleLayer) -> str | None:
    """What speaks against fused routing in this layer on the device where it lies, or None.

    Tried on a few random inputs, which are squashed and routed: poses, couplings and the gradients of both arguments
    against the plain way in float64.
    """
    inputs, _, d, _ = layer.weight.shape
    if not runs(layer.weight.new_empty(1, inputs, d), layer.weight):
        if layer.weight.device.type == "cpu":
            return cpu_fused.why_not() or "takes no capsules like these"
        try:
            importlib.import_module("triton")
        except ImportError:
            return "needs Triton, which cannot be imported"
        return "takes no capsules as large as these"
    try:
        worst = max(_largest_difference(layer, *sizes) for sizes in TRIED)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler, its tools and the driver raise
        lines = str(error).strip().splitlines() or [""]
        return f"does not run here ({type(error).__name__}: {lines[0][:200]})"
    return None if worst <= TOLERANCE else f"differs here from the plain way by {worst:.1g} of the largest entry"


def _largest_difference(layer: CapsuleLayer, images: int, inputs: int) -> float:
    """Over values and gradients, relative to the largest entry of each; infinite where something is not finite."""
    draw = torch.Generator().manual_seed(0)
    _, outputs, d, dim = layer.weight.shape
    s = torch.randn(images, inputs, d, generator=draw).to(layer.weight)  # lower capsules that are yet to be squashed
    weight = 0.3 * torch.randn(inputs, outputs, d, dim, generator=draw).to(layer.weight)
    of_poses = torch.randn(images, outputs, dim, generator=draw).to(layer.weight)

    def answers(route: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], kind: torch.dtype) -> list[Tensor]:
        given = [x.to(kind).requires_grad_() for x in (s, weight)]
        poses, couplings = route(*given)
        return [poses, couplings, *torch.autograd.grad((poses * of_poses).sum(), given)]

    def ours(s: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        return layer.routing.fused(fused_squash(s, "hinton"), W, layer.iterations)[:2]

    def plainly(s: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
        u = squash(s, kind="hinton")
        return layer.routing(torch.einsum("bid,ijde->bije", u, W), u, layer.iterations)[:2]

    differences = torch.stack(
        [
            (x - y).detach().abs().max() / y.detach().abs().max().clamp_min(1e-30)
            for x, y in zip(answers(ours, torch.float32), answers(plainly, torch.float64), strict=True)
        ]
    )
    return float(differences.max()) if differences.isfinite().all() else float("inf")
