"""The training loop of one run: steps, history, checkpoints, probes. Stopped anywhere, it ends in the same bits."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import pandas as pd
import torch
from torch import nn

from capsbench.errors import CapsbenchError, ResourceError
from capsbench.files import write_text
from capsbench.plan.schema import Training
from capsbench.training.capture import CapturedStep, captured
from capsbench.training.checkpoint import Checkpoint, load_checkpoint, restore, save_checkpoint, training_tensors
from capsbench.training.schedule import rate_at
from capsbench.training.step import PARTS, Step

ROWS = 200  # of history.csv, about: every reading waits for the device


def checkpoint_seconds() -> float:
    """Seconds between checkpoints: CAPSBENCH_CHECKPOINT_SECONDS, else 60. A machine's matter: it changes no bit."""
    said = os.environ.get("CAPSBENCH_CHECKPOINT_SECONDS", "60")
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise CapsbenchError(f"CAPSBENCH_CHECKPOINT_SECONDS is {said!r}, not a number of seconds.")
    return seconds


class Diverged(Exception):
    """The loss is not finite: a result, not an error."""


class Interrupted(Exception):
    """A signal came while the probe measured."""


class Probe(Protocol):
    """A measurement along training, one row of curve.csv each time. It must not change the model."""

    def due(self, step: int, steps: int) -> bool:
        """Whether to measure after `step` of `steps` steps."""
        ...

    def measure(self, model: nn.Module, step: int) -> dict[str, float]:
        """A value for every column of the row; `model` is in evaluation mode."""
        ...


class Progress(Protocol):
    """Whoever shows how far a run is."""

    def __call__(self, step: int, steps: int, loss: float | None, speed: float, /) -> None:
        """After each step; `loss` only when it was read, `speed` in images a second."""
        ...


class StopSignal:
    """Remembers SIGTERM (a cluster's time limit) and SIGINT, so that the loop can save and leave.

    Raises ResourceError, on leaving, for one that came after the loop had looked for the last time.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.name and kind is None:
            raise ResourceError(f"stopped by {self.name}; the same command goes on from there.")

    def _remember(self, number: int, _: FrameType | None) -> None:
        self.name = signal.Signals(number).name

    def interrupt(self, *_: object) -> None:
        """Raise Interrupted once a signal has come."""
        if self.name:
            raise Interrupted


class Loop:
    """Trains one run from its newest checkpoint (or from nothing) to its last step.

    Args:
        step: the training step; steps: how many; training: the schedule; epoch_size: examples an epoch.
        folder: the run's folder; run_digest: what a checkpoint must carry to belong to this run.
        probe: a measurement along training, or None; meta: goes into every checkpoint (precision, threads).
    """

    def __init__(
        self,
        step: Step,
        *,
        steps: int,
        training: Training,
        epoch_size: int,
        folder: Path,
        run_digest: str,
        probe: Probe | None,
        meta: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self.step, self.steps, self.training, self.folder = step, steps, training, folder
        self.epoch_size, self.run_digest, self.probe, self.meta, self.say = epoch_size, run_digest, probe, meta, say
        self.every = max(1, math.ceil(steps / ROWS))
        self.history: list[dict[str, float]] = []
        self.curve: list[dict[str, float]] = []
        self.seconds_before = 0.0
        self.resumed = 0
        self.done = self.first = 0  # steps done, and those that were when this process began
        self.way: Step | CapturedStep = step  # how a step is done: captured or not
        self.started = 0.0

    def resume(self, checkpoint: Checkpoint | None) -> int:
        """Take up a checkpoint; returns the number of steps already done."""
        if checkpoint is None:
            return 0
        done = int(checkpoint.meta["step"])
        try:
            self.history = self._rows(
                "history.csv", done, done // self.every + (done == self.steps and done % self.every > 0)
            )
            measured = sum(self.probe.due(step, self.steps) for step in range(done)) if self.probe else 0
            # a signal that came while the probe measured left that row to whoever goes on
            self.curve = self._rows("curve.csv", done, measured, measured + self._is_due(done))
        except ValueError as error:
            self.say(f"{error}: beginning again at step 0.")
            self.history = []
            return 0
        restore(checkpoint, self.step.model, self.step.optimiser, self.step.sums)
        self.seconds_before = float(checkpoint.meta["seconds"])
        self.resumed = int(checkpoint.meta["resumed"]) + 1
        self.say(f"going on after step {done} of {self.steps}")
        return done

    @property
    def captured(self) -> bool:
        """Whether the steps are one CUDA graph."""
        return self.way is not self.step

    def train(self, progress: Progress) -> float:
        """Train to the end; returns the last loss read (a mean over the last steps of the history).

        Raises:
            Diverged: the loss is not finite, or the final weights are not.
            ResourceError: a signal came (what was done is saved), or a file could not be written.
        """
        self.begin()
        with StopSignal() as stop:
            for _ in self.advance(progress, stop):
                pass
        return self.history[-1]["loss"]

    def begin(self) -> None:
        """Take up the newest checkpoint, measure what is due before the first step, capture the step."""
        self.done = self.first = self.resume(load_checkpoint(self.folder / "checkpoint", self.run_digest, self.say))
        if self._is_due(self.done) and not (self.curve and self.curve[-1]["step"] == self.done):
            self._measure(self.done)
        if self.done < self.steps:
            self.way = captured(self.step, self.done, self.say)

    def advance(self, progress: Progress, stop: StopSignal) -> Iterator[None]:
        """Train to the end once it has begun, pausing after each step: then others may have their turn, and `save`.

        Raises as `train` does.
        """
        since = int(self.history[-1]["step"]) if self.history else 0
        self.started = saved = read = time.perf_counter()
        interval = checkpoint_seconds()
        aside = 0.0  # seconds of probes since the last reading: not training
        try:
            while self.done < self.steps:
                self.way(self.done, rate_at(self.done, self.steps, self.training), self.done / self.steps)
                self.done += 1
                done, loss = self.done, None
                if done % self.every == 0 or done == self.steps:
                    loss = self._read(done, done - since)
                    now = time.perf_counter()
                    speed = (done - max(self.first, since)) * self.training.batch / max(now - read - aside, 1e-9)
                    self.history[-1]["images_per_second"] = round(speed, 1)
                    read, since, aside = now, done, 0.0
                if self._is_due(done):
                    aside -= time.perf_counter()
                    # between two batches: a probe may take minutes, which a batch system does not wait
                    hook = self.step.model.register_forward_pre_hook(stop.interrupt)
                    with contextlib.suppress(Interrupted):
                        self._measure(done)
                    hook.remove()
                    aside += time.perf_counter()
                now = time.perf_counter()
                ours = (done - self.first) * self.training.batch
                progress(done, self.steps, loss, ours / max(now - self.started, 1e-9))
                if stop.name or (now - saved > interval and done < self.steps):
                    self.save()
                    saved = time.perf_counter()
                if stop.name:
                    raise ResourceError(
                        f"{self.folder}: stopped by {stop.name}, saved after step {done} of {self.steps}; "
                        f"the same command goes on from there."
                    )
                yield
        except Diverged:
            self._write_rows()  # what was finite: else they would be as old as the newest checkpoint, or another run's
            raise
        finally:
            self.seconds_before += time.perf_counter() - self.started
        self._write_rows()

    def save(self) -> None:
        """Write history, curve and then the checkpoint, so that rows are never missing for steps that count as done."""
        self._write_rows()
        seconds = self.seconds_before + time.perf_counter() - self.started
        meta = {**self.meta, "run": self.run_digest, "step": self.done, "seconds": seconds, "resumed": self.resumed}
        tensors = training_tensors(self.step.model, self.step.optimiser, self.step.sums)
        save_checkpoint(self.folder / "checkpoint", Checkpoint(tensors, meta))

    def _read(self, done: int, steps: int) -> float:
        """One row of history: the mean loss of the last steps. The only place that waits for the device."""
        means = dict(zip(PARTS, (self.step.sums / steps).tolist(), strict=True))
        self.step.sums.zero_()
        if not all(math.isfinite(value) for value in means.values()):
            raise Diverged(f"the loss is not finite between steps {done - steps + 1} and {done}")
        if done == self.steps and not all(value.isfinite().all() for value in self.step.model.state_dict().values()):
            raise Diverged(f"weights are not finite after step {done}, the last; no loss has seen them")
        rate = rate_at(done - 1, self.steps, self.training)
        self.history.append(
            {"step": done, "epoch": done * self.training.batch / self.epoch_size, **means, "rate": rate}
        )
        return means["loss"]

    def _is_due(self, done: int) -> bool:
        return self.probe is not None and self.probe.due(done, self.steps)

    @torch.no_grad()
    def _measure(self, done: int) -> None:
        assert self.probe is not None
        self.step.model.eval()
        try:
            self.curve.append({"step": done, **self.probe.measure(self.step.model, done)})
        finally:
            self.step.model.train()

    def _write_rows(self) -> None:
        try:
            write_text(self.folder / "history.csv", pd.DataFrame(self.history).to_csv(index=False))
            if self.probe:
                write_text(self.folder / "curve.csv", pd.DataFrame(self.curve).to_csv(index=False))
        except OSError as error:
            raise ResourceError(f"{self.folder} cannot be written to: {error.strerror}.") from None

    def _rows(self, name: str, done: int, *counts: int) -> list[dict[str, Any]]:
        """The rows up to step `done` of a CSV file in the run's folder. Raises ValueError if they are not `counts`."""
        path = self.folder / name
        if not any(counts):
            return []
        try:
            frame = pd.read_csv(path, dtype=str).astype(float).astype({"step": int})
        except pd.errors.EmptyDataError:  # as a file of no rows is written
            frame = pd.DataFrame({"step": []})
        except (ValueError, KeyError, OSError) as error:  # pandas' own errors are ValueErrors
            raise ValueError(f"{path} cannot be read ({error})") from None
        rows = frame[frame["step"] <= done].to_dict("records")
        if len(rows) not in counts:
            raise ValueError(f"{path} has {len(rows)} rows up to step {done} where {max(counts)} belong")
        return [{str(key): value for key, value in row.items()} for row in rows]
