"""Train one run: (task, variant, seed) of a plan to weights, history and manifest."""

from __future__ import annotations

import copy
import datetime
import importlib
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from capsbench.data.affnist_place import measured_on
from capsbench.data.batch import DigitSet, Stream
from capsbench.data.digits import Digits
from capsbench.errors import RoutingError
from capsbench.files import write_json
from capsbench.models import build_model, count_parameters
from capsbench.models.flops import forward_flops
from capsbench.models.layout import channels_last
from capsbench.plan import Cell, House
from capsbench.plan.done import is_done, run_digests
from capsbench.plan.routings import is_custom
from capsbench.provenance import digest_of_file, git_state, machine, versions
from capsbench.training.capture import captured
from capsbench.training.checkpoint import write_tensors
from capsbench.training.device import give_memory_back
from capsbench.training.digits import training_digits
from capsbench.training.fusing import choose_routing, plain_routing, set_routing
from capsbench.training.loop import Diverged, Loop, Probe, Progress
from capsbench.training.memory import says_what_fits
from capsbench.training.step import FASTER, Step, torch_seed
from capsbench.training.tiling import choose_convolutions, keep_convolutions


@dataclass(frozen=True)
class Setting:
    """What the runs of a cell share: the machine's side and the data."""

    house: House
    cell: Cell
    digits: Digits  # on the device
    dataset: dict[str, str]  # name, badge, digest
    device: torch.device
    threads: int
    say: Callable[[str], None]


def make_stream(cell: Cell, train: DigitSet, seed: int) -> Stream:
    """The task's stream of training batches."""
    task = importlib.import_module(f"capsbench.data.{cell.task}")
    options: dict[str, Any] = {}
    if cell.task == "multimnist":
        options = {"pairs": cell.options.train_pairs, "placement": cell.options.placement}  # type: ignore[attr-defined]
    if cell.spec.train_on == "pairs":
        # as many pairs an epoch as the other rows see digits
        return task.pair_stream(train, seed=seed, batch=cell.training.batch, pairs=len(train.labels))
    return task.training_stream(train, seed=seed, batch=cell.training.batch, **options)


def make_probe(setting: Setting, stream: Stream) -> Probe | None:
    """The task's measurement along training, if it has one. Raises DataError when its test data cannot be made.

    A trial has none: it is judged on held-out digits, and what is measured along training is measured on test data.
    """
    if setting.cell.task == "mnist" or setting.cell.trial is not None:
        return None
    module = importlib.import_module(f"capsbench.training.probe_{setting.cell.task}")
    where = {}
    if setting.cell.task == "affnist":
        where = {"dataset": setting.cell.dataset, "folder": setting.house.plan.data_folder}
    return module.make_probe(setting.cell.options, setting.digits, stream, setting.cell.training.batch, **where)


def new_model(setting: Setting, seed: int) -> nn.Module:
    """The cell's model with the first weights of `seed`: the same on every device, since they are drawn on the CPU.

    Raises RoutingError, naming the variant, where its routing takes no such option or, from outside the package, does
    not do what is expected of a routing: that is tried here, before it trains.
    """
    torch.manual_seed(torch_seed(seed, "weights"))
    cell = setting.cell
    routing, size = getattr(cell.spec, "routing", ""), cell.options.IMAGE[0]
    folder = setting.house.path.parent
    try:
        if is_custom(routing):
            # imported by name: a run's digest follows imports, and what tries a routing decides no weight
            model = importlib.import_module("capsbench.models.trial").build_and_try(cell.spec, size, folder)
        else:
            model = build_model(cell.spec, size, folder)
    except RoutingError as error:
        raise RoutingError(str(error) if cell.variant == routing else f"variant {cell.variant}: {error}") from error
    return channels_last(model.to(setting.device))


@says_what_fits
def choose_precision(setting: Setting, seed: int) -> tuple[str, dict[str, float] | None]:
    """The precision to train in, and the seconds of one step that `auto` measured to choose it."""
    wanted = setting.cell.training.precision
    if wanted != "auto":
        return wanted, None
    train = training_digits(setting.cell, setting.digits.train, seed)
    times = {}
    for precision in ("float32", "bf16"):
        model = new_model(setting, seed)
        if setting.device.type == "cuda" or precision == "bf16":
            choose_routing(model, setting.device, lambda _: None)  # timed as it will train: fused, captured
        if precision == "bf16":
            choose_convolutions(model, lambda _: None)
        step = Step(model, setting.cell.spec, make_stream(setting.cell, train, seed), seed, precision, 1e-3)
        times[precision] = round(step.seconds(captured(step, 0, lambda _: None)), 6)
    return ("bf16" if times["float32"] > FASTER * times["bf16"] else "float32"), times


@dataclass(frozen=True)
class Run:
    """A run that is ready to train, and what its manifest is made of."""

    setting: Setting
    seed: int
    digests: dict[str, str]
    started: datetime.datetime
    resolved: dict[str, Any]  # goes into every checkpoint too
    stream: Stream
    loop: Loop

    def finish(self, loss: float | None, reason: str | None = None) -> dict[str, Any]:
        """Write weights and manifest of a trained run, or with a `reason` of one that failed; returns the manifest."""
        setting, loop, house, cell = self.setting, self.loop, self.setting.house, self.setting.cell
        folder, model = loop.folder, loop.step.model
        if setting.device.type == "cuda":
            self.resolved["captured"] = loop.captured
        write_tensors(folder / "weights.safetensors", model.state_dict(), {"run": self.digests["run"]})
        with plain_routing(model):
            flops = forward_flops(model, (self.stream.height, self.stream.width))
        manifest = {
            "schema": 1,
            "run": {"task": cell.task, "variant": cell.folder_name, "seed": self.seed},
            "status": "done" if reason is None else "failed",
            "reason": reason,
            "digest": self.digests["run"],
            "digests": {key: value for key, value in self.digests.items() if key != "run"},
            "config": {**cell.config(), "steps": loop.steps},
            "resolved": self.resolved,
            "dataset": {key: setting.dataset[key] for key in ("name", "badge")},
            "reductions": house.reductions(cell),
            "parameters": count_parameters(model),
            "flops": flops,
            "steps": loop.steps,
            "final_loss": loss,
            "weights": digest_of_file(folder / "weights.safetensors"),
            "seconds": round(loop.seconds_before, 3),
            "peak_memory_mb": peak_memory_mb(setting.device),
            "started": self.started.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "resumed": loop.resumed,
            "versions": versions(),
            "machine": machine(),
            "git": git_state(),
        }
        write_json(folder / "manifest.json", manifest)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        return manifest


@says_what_fits
def train_run(
    setting: Setting, seed: int, progress: Progress, resolved: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Train one run and write its folder; a run that is done already is left alone.

    Args:
        resolved: precision and threads of the cell's other seeds, so that they agree.

    Returns:
        The manifest. Its status is `done`, or `failed` when the loss is not finite.

    Raises:
        DataError: too few digits. ResourceError: memory, disk or a signal stopped it; what was saved is kept.
    """
    run = prepare(setting, seed, resolved)
    if not isinstance(run, Run):
        return run
    try:
        loss = run.loop.train(progress)
    except Diverged as diverged:
        return run.finish(None, str(diverged))
    return run.finish(loss)


def prepare(setting: Setting, seed: int, resolved: dict[str, Any] | None = None) -> Run | dict[str, Any]:
    """A run with model, data and loop, ready to begin; of one that is done already its manifest. As `train_run`."""
    house, cell = setting.house, setting.cell
    folder = house.run_folder(cell, seed)
    digests = run_digests(house, cell, seed, setting.dataset["digest"], measured_on(house, cell))
    if (manifest := is_done(folder, digests)) is not None:
        return manifest
    (folder / "manifest.json").unlink(missing_ok=True)
    give_memory_back()  # of the run before
    started = datetime.datetime.now(datetime.UTC)
    train = training_digits(cell, setting.digits.train, seed)
    stream = make_stream(cell, train, seed)
    model = new_model(setting, seed)
    if resolved is None:
        precision, timings = choose_precision(setting, seed)
        resolved = {"precision": precision, "precision_timings": timings}
    resolved = {**resolved, "threads": setting.threads, "device": str(setting.device)}
    # what is chosen depends on the precision that the run goes on in
    resolved = _kept_on_resume(folder, digests["run"], resolved)
    if setting.device.type == "cuda" or resolved["precision"] == "bf16":
        resolved |= choose_routing(model, setting.device, setting.say)
    if resolved["precision"] == "bf16":
        resolved |= choose_convolutions(model, setting.say)
    resolved = _kept_on_resume(folder, digests["run"], resolved)
    set_routing(model, resolved.get("routing") == "fused")
    if "convolutions" in resolved:
        resolved |= keep_convolutions(model, resolved["convolutions"], setting.say)
    torch.set_num_threads(resolved["threads"])
    epoch = stream.size
    if setting.dataset["name"] == "uci-digits":  # a stand-in trains for as many steps as the plan's digits would take
        epoch = house.epoch_images(cell.options)
    loop = Loop(
        Step(model, cell.spec, stream, seed, resolved["precision"], cell.training.rate),
        steps=cell.steps(epoch),
        training=cell.training,
        epoch_size=stream.size,
        folder=folder,
        run_digest=digests["run"],
        probe=make_probe(setting, stream),
        meta=resolved,
        say=setting.say,
    )
    return Run(setting, seed, digests, started, resolved, stream, loop)


def _kept_on_resume(folder: Path, run_digest: str, resolved: dict[str, Any]) -> dict[str, Any]:
    """Precision, threads and routing of the checkpoint a run goes on from, so that its bits do not change midway."""
    from capsbench.training.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(folder / "checkpoint", run_digest, lambda _: None)
    if checkpoint is None:
        return resolved
    keys = {*resolved, "seeds_at_once"} - {"device"}  # the seconds so far are those of as many at once
    kept = {key: checkpoint.meta[key] for key in keys if key in checkpoint.meta}
    if resolved.get("routing") == "plain":  # fused routing does not run here: that is said, and the run goes on
        kept.pop("routing", None)
    return {**resolved, **copy.deepcopy(kept)}


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory in MB: the GPU's allocations, or the process's resident memory on a CPU."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
