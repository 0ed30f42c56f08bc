"""`capsbench bench`: a plan's variants and the plain reference, side by side on one device."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import torch

from capsbench.bench.count import moved_bytes
from capsbench.bench.measure import Contender, Say, copy, products, race, row
from capsbench.bench.plain import PlainCapsNet, PlainStep
from capsbench.data.batch import Batch, DigitSet
from capsbench.errors import CapsbenchError, refuse_lost_gpu
from capsbench.evaluation.memory import peak_bytes
from capsbench.models import build_model, count_parameters
from capsbench.models.convolution import Convolution
from capsbench.models.flops import flops
from capsbench.models.layout import channels_last
from capsbench.others import Others
from capsbench.plan import Cell, House
from capsbench.plan.task import TRAINING_DIGITS
from capsbench.provenance import git_state, machine, versions
from capsbench.training.capture import CapturedStep, captured
from capsbench.training.fusing import choose_routing, plain_routing
from capsbench.training.memory import is_out_of_memory
from capsbench.training.precisions import precisions
from capsbench.training.run import make_stream
from capsbench.training.step import Step
from capsbench.training.tiling import choose_convolutions, set_convolutions

PLAIN = "plain PyTorch CapsNet"


def bench(
    house: House,
    cells: list[Cell],
    batch: int | None,
    rounds: int,
    device: torch.device,
    threads: int,
    say: Say,
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Time training and inference of cells of one task, and of the plain CapsNet at its image size.

    Args:
        batch: images a step; None takes the plan's. rounds: how often each is timed after a warm-up.
        keep: called after each round with the result so far, since a lent machine may go before the last.

    Returns:
        What `--json` writes: machine, versions, device, threads and one row a contender (`measure.row`).
    """
    if "bf16" not in precisions(device):
        say("bf16 is left out: this CPU has no instructions for it, and torch would emulate it.")
    size, batch = cells[0].options.IMAGE[0], batch or cells[0].training.batch
    reference = PlainCapsNet(size).to(device)
    single = random_batch(size, batch, device)
    references = [Contender(PLAIN, "training", "float32", batch, PlainStep(reference, single))]
    if device.type == "cuda":
        references.append(Contender(PLAIN, "training", "tf32", batch, PlainStep(reference, single, tf32=True)))
    references.append(Contender(PLAIN, "inference", "float32", batch, _inference(reference, single.images, "float32")))
    contenders = []
    for contender in references:
        with _or_left_out(f"{PLAIN}, {contender.phase}, {contender.precision}", say):
            _count(contender, reference, device)
            contenders.append(contender)
    parameters = {PLAIN: count_parameters(reference)}
    for cell in cells:
        ours = _contenders(house, cell, batch, device, say)
        for contender in ours:
            if contender.phase == "training":
                parameters[contender.name] = count_parameters(contender.call.model)  # type: ignore[attr-defined]
        contenders += ours
    if all(contender.name == PLAIN for contender in contenders):
        labels = ", ".join(cell.label for cell in cells)
        raise CapsbenchError(f"No way of training {labels} could be timed; torch's reason for each is printed above.")
    about: dict[str, Any] = {
        "schema": 1,
        "plan": house.name,
        "task": cells[0].task,
        "device": device.type,
        "threads": threads,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "parameters": parameters,
        "width": {cell.variant: cell.width for cell in cells},  # of the plan's models; the reference has the paper's
        "versions": versions(),
        "machine": machine(),
        "git": git_state(),
    }
    multiplied, copied = list(products(device)), copy(device)
    result: dict[str, Any] = {}
    others = Others()

    def after(done: int) -> None:
        if done in (1, rounds):  # not after each: what is timed next would meet a GPU that has idled
            about["clocks"] = clocks(device)
        result.update(about | {"rounds": done, "others": others.cores()} | _timed(contenders, multiplied, copied))
        keep(result)

    race([*contenders, *multiplied, copied], rounds, device, say, after)
    return result


def _timed(contenders: list[Contender], multiplied: list[Contender], copied: Contender) -> dict[str, Any]:
    """The figures of the rounds so far."""
    peak = {c.precision: c.flops / statistics.median(c.seconds) for c in multiplied if c.flops}
    plain = {
        c.phase: statistics.median(c.seconds) / c.images
        for c in contenders
        if c.name == PLAIN and c.precision == "float32"
    }
    return {
        "product_flops_per_second": peak,
        "copy_bytes_per_second": copied.moved / statistics.median(copied.seconds) if copied.moved else None,
        "rows": [row(c, plain, peak, TRAINING_DIGITS) for c in contenders],
    }


def clocks(device: torch.device) -> dict[str, str] | None:
    """A GPU's clocks as its driver says them, right after it has worked; None on a CPU, or where it does not say."""
    if device.type != "cuda":
        return None
    names = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem")
    which = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"  # torch's numbers are not the driver's
    command = ["nvidia-smi", which, f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(names, (word.strip() for word in answer.splitlines()[0].split(",")), strict=True))


class _Training:
    """The suite's own step, batch by batch from the task's stream."""

    def __init__(self, step: Step | CapturedStep, model: torch.nn.Module) -> None:
        self.step, self.model, self.number = step, model, 0

    def __call__(self) -> None:
        self.step(self.number, 1e-3)
        self.number += 1


def _contenders(house: House, cell: Cell, batch: int, device: torch.device, say: Say) -> list[Contender]:
    """Training and inference of one cell, in each precision; by our kernels where runs take them, and captured, too.

    A way that torch cannot go there is said and left out.
    """
    digits = _random_digits(device)
    resized = dataclasses.replace(cell, training=cell.training.model_copy(update={"batch": batch}))
    found = []
    for precision, ours in itertools.product(precisions(device), (False, True)):
        torch.manual_seed(0)
        model = channels_last(build_model(cell.spec, cell.options.IMAGE[0], house.path.parent).to(device))
        name = as_it_trains(cell.variant, model, precision, device, say) if ours else cell.variant
        if ours and name == cell.variant:
            continue
        step = Step(model, cell.spec, make_stream(resized, digits, 0), 0, precision, 1e-3)
        with _or_left_out(f"{name}, {precision}", say):
            found += _of_one_way(name, step, model, precision, batch, device, ours, say)
    return found


def as_it_trains(name: str, model: torch.nn.Module, precision: str, device: torch.device, say: Say) -> str:
    """Set a model to fused routing and tiles where a run in this precision would take them; the name, and which."""
    chosen = choose_routing(model, device, say) if device.type == "cuda" or precision == "bf16" else {}
    if precision == "bf16":
        chosen |= choose_convolutions(model, say)
    return ", ".join([name, *(way for way in chosen.values() if way != "plain")])


@contextlib.contextmanager
def _or_left_out(what: str, say: Say) -> Iterator[None]:
    """Within: what torch cannot do on this device (no deterministic convolution of a layout, say) is said and left out.

    Raises RuntimeError where memory does not suffice, ResourceError where the GPU answers no more.
    """
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        say(f"{what}: not timed, since torch says {str(error).splitlines()[0]}")
        refuse_lost_gpu()


def _of_one_way(
    name: str,
    step: Step,
    model: torch.nn.Module,
    precision: str,
    batch: int,
    device: torch.device,
    ours: bool,
    say: Say,
) -> list[Contender]:
    """Training, inference and, where a step can be captured, training captured."""
    images = step.stream.batch(0).images
    found = [
        Contender(name, "training", precision, batch, _Training(step, model)),
        Contender(name, "inference", precision, batch, _inference(model, images, precision)),
    ]
    for contender in found:
        _count(contender, model, device, ours)
    fast = captured(step, 0, say)
    if isinstance(fast, CapturedStep):
        # the same arithmetic; what a graph moves and holds is counted by nobody on the host
        training = found[0].flops
        found.append(Contender(f"{name}, captured", "training", precision, batch, _Training(fast, model), training))
    return found


def _inference(model: torch.nn.Module, images: torch.Tensor, precision: str) -> Callable[[], None]:
    def call() -> None:
        training = model.training
        model.eval()
        # not inference mode: under torch's counters a GPU's bf16 convolution padded `same` would miss its casts there
        with torch.no_grad(), torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bf16"):
            model(images)
        model.train(training)

    return call


def _count(contender: Contender, model: torch.nn.Module, device: torch.device, ours: bool = False) -> None:
    """Fill in what one call computes, moves and holds; not what it moves where kernels of ours do, which torch does not
    see: those of fused routing, of tiles and, on a GPU in float32, of frequencies.
    """
    contender.call()  # the optimiser's state is there from now on
    with plain_routing(model), _plain_convolutions(model):  # the same products, which torch counts only here
        contender.flops = flops(contender.call)
    unseen = ours or (device.type == "cuda" and contender.precision == "float32" and contender.name != PLAIN)
    contender.moved = None if unseen else moved_bytes(contender.call)
    model.zero_grad()  # whoever drops old gradients later than others would seem to need more
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    contender.peak = held + peak_bytes(contender.call, device)


@contextlib.contextmanager
def _plain_convolutions(model: torch.nn.Module) -> Iterator[None]:
    """A model without tiles for a while."""
    tiled = any(isinstance(layer, Convolution) and layer.tiled for layer in model.modules())
    set_convolutions(model, False)
    try:
        yield
    finally:
        set_convolutions(model, tiled)


def _random_digits(device: torch.device) -> DigitSet:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (TRAINING_DIGITS, 28, 28), generator=draw, dtype=torch.uint8)
    labels = torch.arange(TRAINING_DIGITS) % 10
    return DigitSet(images.to(device), labels.to(device))


def random_batch(size: int, batch: int, device: torch.device) -> Batch:
    """`batch` random images of one digit each, `size` pixels high and wide."""
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(batch, 1, size, size, generator=draw).to(device)
    labels = torch.randint(0, 10, (batch, 1), generator=draw).to(device)
    return Batch(images, labels, images)
