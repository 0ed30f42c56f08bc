"""One training step: batch, loss, gradient, Adam. Nothing in it waits for the device."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from capsbench.data.batch import Batch, Stream
from capsbench.plan.variants import Spec
from capsbench.training.losses import classification_loss, reconstruction_loss, reconstruction_weight

PARTS = ("loss", "classification", "reconstruction")
FASTER = 1.3  # bf16 is taken only where it is clearly faster: near the border a noisy timing would decide the bits


def torch_seed(seed: int, purpose: str) -> int:
    """A seed for torch's generator, for each purpose of a run its own (of which a CPU's generator reads 32 bits)."""
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")


def adam(model: nn.Module, rate: float, on_device: bool) -> torch.optim.Adam:
    """The optimiser of a run; eps is TensorFlow's default, as are the betas (section 4: "Adam with its TensorFlow
    default parameters"). TensorFlow adds it before the second moment's bias is corrected, PyTorch after.

    on_device: the rate lies in a tensor beside the weights, in float32, as a captured step reads it. Else it is a
    number, in double precision, which a CPU's bits hang on.
    """
    optimiser = torch.optim.Adam(
        model.parameters(), lr=rate, betas=(0.9, 0.999), eps=1e-8, fused=True, capturable=on_device
    )
    if on_device:
        for group in optimiser.param_groups:
            group["lr"] = torch.full((), rate, dtype=torch.float32, device=group["params"][0].device)
    return optimiser


class Step:
    """The step of one run.

    Args:
        model, spec: what is trained; stream: its batches; seed: the run's seed; precision: `float32` or `bf16`.
        rate: learning rate of the first step; it is set anew before each.
    """

    def __init__(self, model: nn.Module, spec: Spec, stream: Stream, seed: int, precision: str, rate: float) -> None:
        self.model, self.spec, self.stream, self.seed, self.precision = model, spec, stream, seed, precision
        self.device = next(model.parameters()).device
        self.optimiser = adam(model, rate, on_device=self.device.type == "cuda")
        self.progress = torch.ones((), dtype=torch.float64, device=self.device)  # as exact as Python's own numbers
        self.sums = torch.zeros(len(PARTS), device=self.device)  # of each part of the loss since the last reading

    def losses(self, batch: Batch, progress: float | Tensor = 1.0) -> Tensor:
        """Total, classification and reconstruction loss [3], each the mean over the batch.

        `progress` is the share of training that is done (a number or a float64 tensor []), for a loss that changes
        along it.
        """
        low = self.precision == "bf16"
        weight = reconstruction_weight(self.spec)
        with torch.autocast(self.device.type, torch.bfloat16) if low else contextlib.nullcontext():
            output = self.model(batch.images)
            classification = classification_loss(self.spec, output.scores.float(), batch.labels, progress).mean()
            drawing = torch.zeros_like(classification)
            if weight:
                for n in range(batch.labels.shape[1]):  # the decoder runs once for each digit (section 6)
                    drawn = self.model.reconstruct(output.poses, batch.labels[:, n])  # type: ignore[operator]  # [B, H, W]
                    drawing = drawing + reconstruction_loss(drawn, batch.digits[:, n]).mean()
        return torch.stack([classification + weight * drawing, classification, drawing])

    def __call__(self, step: int, rate: float, progress: float = 1.0) -> None:
        """Train on the batch of `step` (counted from 0) with that learning rate, `progress` as in `losses`."""
        self.prepare(step, rate, progress)
        self.train(self.stream.batch(step))

    def prepare(self, step: int, rate: float, progress: float) -> None:
        """Set all but the batch that changes from step to step: the random seed, the learning rate, the progress."""
        torch.manual_seed(
            torch_seed(self.seed, f"step {step}")
        )  # dropout is a function of (seed, step): nothing to carry over a restart
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.progress.fill_(progress)

    def train(self, batch: Batch) -> None:
        """Train on a batch. Python decides nothing here that changes from step to step, so this can be captured."""
        losses = self.losses(batch, self.progress)
        self.optimiser.zero_grad()
        losses[0].backward()
        self.optimiser.step()
        self.sums += losses.detach()

    def seconds(self, way: Callable[[int, float], None], repeats: int = 3) -> float:
        """The fastest of a few steps done that way (captured or not), after one that is not counted.

        It trains: time a copy of the model.
        """
        times = []
        for step in range(repeats + 1):
            self._wait()
            start = time.perf_counter()
            way(step, 1e-3)
            self._wait()
            times.append(time.perf_counter() - start)
        return min(times[1:])

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
