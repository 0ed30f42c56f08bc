"""A training step recorded once as a CUDA graph and started as a whole, where it has shown the eager step's own bits.

A graph runs the same kernels on the same addresses again. Of a step it freezes all that Python decides, so `Step` keeps
what changes from step to step in tensors: the batch, the learning rate, the progress. Random numbers too: a recorded
dropout reads its generator's seed and offset when the graph is started, so `torch.manual_seed` before each start gives
the mask that it gives an eager step. Casts to bf16 are recorded with the rest, for autocast begins and ends inside the
step, and forgets them at its end.

None of this is taken on trust. Before a run uses a graph, a few steps from the run's own state are done both ways;
where a single bit differs, or the step cannot be recorded, the run trains eagerly and says so. Either way it is the
same run.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from capsbench.data.batch import Batch
from capsbench.errors import CapsbenchError
from capsbench.training.checkpoint import tensor_digest, training_tensors
from capsbench.training.step import Step

WARM_UP = 3  # steps before a recording: libraries set themselves up in the first ones, which a recording must not hold
# Steps that are done both ways, (learning rate, progress): all differ, as their batches and random seeds do, since what
# a recording has frozen by mistake shows only where it changes.
TRIED = ((1e-3, 0.0), (3e-4, 0.4), (7e-4, 0.9))

BROKEN: list[torch.cuda.CUDAGraph] = []  # whose recording broke off; kept, since torch 2.11's allocator still asks them


class Recorder(Protocol):
    """What can record tensor operations and do them again, on what then lies in the same tensors."""

    def record(self, work: Callable[[], None]) -> None:
        """Record `work`. What the tensors it writes hold afterwards is not defined."""
        ...

    def replay(self) -> None:
        """Do again what was recorded."""
        ...


class CudaGraph:
    """A recorder on a CUDA GPU. Raises RuntimeError where something cannot be recorded, or memory does not suffice."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.graph = device, torch.cuda.CUDAGraph()

    def record(self, work: Callable[[], None]) -> None:
        """Warm up on a side stream, as a recording must, then record there.

        Libraries have work space for each stream, and a recording keeps its addresses: on torch's own stream for
        recordings, those of several seeds would share it.
        """
        side, here = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        here.wait_stream(side)
        recorded = False
        try:
            with _no_garbage(), torch.cuda.graph(self.graph, stream=side):
                work()
            recorded = True
        finally:
            if not recorded:
                BROKEN.append(self.graph)
                # torch 2.11 leaves the recording's stream current where the recording's end fails too
                torch.cuda.set_stream(here)
                # a recording that broke off leaves torch's generator in its midst: the next eager dropout would fail
                default = torch.cuda.default_generators[torch.cuda.current_device()]
                default.graphsafe_set_state(torch.Generator(self.device))

    def replay(self) -> None:
        """Start the graph; nothing waits for it."""
        self.graph.replay()


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Within: Python looks for no cycles. A graph that lies in one and is freed in a recording would break it off."""
    gc.collect()
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


class CapturedStep:
    """`step` as a recording: it is called as the step is, writes the same tensors, and ends in the same bits.

    The step's optimiser must have its state already (after the first step it has), and none of the tensors it trains
    may be replaced afterwards: a checkpoint is restored before. first: a step whose batch has the shape of all; streams
    give no other, for positions run on across epochs. Raises RuntimeError as the recorder does.
    """

    def __init__(self, step: Step, recorder: Recorder, first: int) -> None:
        self.step, self.recorder = step, recorder
        self.batch = Batch(*(value.clone() for value in step.stream.batch(first)))
        step.optimiser.zero_grad()
        recorder.record(lambda: step.train(self.batch))
        step.optimiser.zero_grad()  # the gradients' memory is the recording's own

    def __call__(self, step: int, rate: float, progress: float = 1.0) -> None:
        """Train on the batch of `step`, as `Step` does. Raises ValueError for a batch of another shape."""
        for buffer, value in zip(self.batch, self.step.stream.batch(step), strict=True):
            if buffer.shape != value.shape:
                raise ValueError(f"a batch of {list(value.shape)} where {list(buffer.shape)} was recorded")
            buffer.copy_(value)
        self.step.prepare(step, rate, progress)
        self.recorder.replay()


def captured(step: Step, first: int, say: Callable[[str], None]) -> Step | CapturedStep:
    """The step to train with from step `first` on: captured on a CUDA GPU if it proves itself there, else `step`.

    CAPSBENCH_CAPTURE=off leaves it eager. It is a machine's matter: it changes no bit. Raises CapsbenchError for any
    other value of it, and what `step` raises.
    """
    wanted = os.environ.get("CAPSBENCH_CAPTURE") or "on"
    if wanted not in ("on", "off"):
        raise CapsbenchError(f"CAPSBENCH_CAPTURE is {wanted!r}; say on or off.")
    if step.device.type != "cuda" or wanted == "off":
        return step
    if ":" in getattr(step.spec, "routing", ""):
        say("The training step is not captured: a routing from outside the package may decide anew in every step.")
        return step
    return proven(step, first, say, lambda: CudaGraph(step.device))


def proven(step: Step, first: int, say: Callable[[str], None], recorder: Callable[[], Recorder]) -> Step | CapturedStep:
    """`step` recorded, if from its present state both ways end in the same bits; else, said aloud, `step` itself.

    The steps from `first` on are tried; all tensors of the training are left as they were, in place.
    """
    before = copies(step)
    eager = bits_after(step, step, first)  # not in the try: what fails here fails without a recording too
    put_back(step, before)
    fast, why = None, "it ended in other bits than the eager step"
    try:
        fast = CapturedStep(step, recorder(), first)
        put_back(step, before)
        if bits_after(step, fast, first) != eager:
            fast = None
    except Exception as error:  # whatever a recording runs into is said, and the run does without one
        fast, why = None, said(error)
    if fast is None:
        step.optimiser.zero_grad()
        if step.device.type == "cuda":
            with contextlib.suppress(RuntimeError):  # a broken recording's memory may still count as being recorded
                torch.cuda.empty_cache()
        say(f"The training step is not captured ({why}): slower, the same result.")
    put_back(step, before)
    return fast or step


def bits_after(step: Step, way: Callable[[int, float, float], None], first: int) -> str:
    """A digest of everything trained after the tried steps."""
    for number, (rate, progress) in enumerate(TRIED, start=first):
        way(number, rate, progress)
    return bits_of(step)


def bits_of(step: Step) -> str:
    """A digest of everything trained."""
    return tensor_digest(training_tensors(step.model, step.optimiser, step.sums))


def copies(step: Step) -> dict[str, Tensor]:
    """What is trained, copied to the host: the GPU's peak memory is part of a run's manifest."""
    tensors = training_tensors(step.model, step.optimiser, step.sums)
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


@torch.no_grad()
def put_back(step: Step, before: dict[str, Tensor]) -> None:
    """Write copies into the tensors they came from. An optimiser that had no state gets zeros, as it starts with."""
    for name, tensor in training_tensors(step.model, step.optimiser, step.sums).items():
        if name in before:
            tensor.copy_(before[name])
        else:
            tensor.zero_()


def said(error: BaseException) -> str:
    """What went wrong first, in one line: an error while recording makes another one at the recording's end."""
    while error.__context__ is not None:
        error = error.__context__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
