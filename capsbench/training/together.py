"""Several seeds of a cell in one process: they take turns, step by step, on a CUDA GPU each on a stream of its own.

One seed alone does not fill a large GPU. Each run keeps what is its own (weights, batches, history, checkpoints), and a
step takes its random seed from (seed, step), so turns change no bit on one stream. On several streams only steps that
are captured and draw no random numbers go at once. An eager step keeps the host busy anyway. Dropout in a graph reads
its seed from memory that torch has once for a generator and fills in before each replay: two streams would write there
at the same time. Libraries' work space is one for each stream, so each seed also records on a stream of its own
(`CudaGraph`). As with the graph itself, none of this is taken on trust: before they train, a few steps of all seeds at
once must end in the bits that each gives alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from capsbench.errors import CapsbenchError, ResourceError
from capsbench.training.capture import TRIED, bits_after, bits_of, copies, put_back, said
from capsbench.training.loop import Diverged, Loop, Progress, StopSignal
from capsbench.training.memory import is_out_of_memory
from capsbench.training.run import Run, Setting, prepare, train_run
from capsbench.training.step import Step, torch_seed

MOST = 16  # torch has 32 streams and hands them out in a circle; a seed takes two, to train on and to record on
USUAL = 5  # on a GPU: an H200 trained CapsNet's five 1.2 times as fast in float32, 1.4 times in bf16 (docs/gpu-run.md)
SPARE = 0.9  # share of the free memory that further seeds may take: a probe or a reading later on needs a little too

Held = Callable[[int], AbstractContextManager[Progress]]  # holds the folder of a seed's run, and shows how far it is


def most_at_once(seeds: int, device: torch.device | None = None) -> int:
    """How many of a cell's `seeds` may train at once: CAPSBENCH_SEEDS_AT_ONCE, else five on a CUDA GPU, one elsewhere.

    It is a machine's matter: it changes no bit. Where no `device` is given the usual number is one, too: so asks who
    wants each seed finished before the next begins. Raises CapsbenchError where CAPSBENCH_SEEDS_AT_ONCE is not a number
    from 1 on.
    """
    usual = USUAL if device is not None and device.type == "cuda" else 1
    wanted = os.environ.get("CAPSBENCH_SEEDS_AT_ONCE") or str(usual)
    if not (wanted.isascii() and wanted.isdigit() and int(wanted)):
        raise CapsbenchError(f"CAPSBENCH_SEEDS_AT_ONCE is {wanted!r}; say a number from 1 on.")
    return min(int(wanted), seeds, MOST)


@dataclass(frozen=True)
class Turn:
    """One of the runs that take turns."""

    run: Run
    progress: Progress
    stream: torch.cuda.Stream | None  # None on a CPU

    @property
    def loop(self) -> Loop:
        """What trains the run."""
        return self.run.loop

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Within: its stream, and its number of threads, which a run that goes on has from its checkpoint."""
        torch.set_num_threads(self.run.resolved["threads"])
        with torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext():
            yield


def train_seeds(
    setting: Setting, seeds: Sequence[int], held: Held, resolved: dict[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train seeds of a cell, as many at once as `most_at_once` and the memory allow; each with its manifest as it ends.

    Args:
        held: is entered for each seed before its folder is touched; resolved: precision of the cell, as for train_run.

    Raises:
        What train_run raises, and CapsbenchError as `most_at_once`. Whatever stops one run stops all: the others are
        saved first. Only a loss that is not finite ends its run alone.
    """
    waiting, most = list(seeds), most_at_once(len(seeds), setting.device)
    while waiting and most > 1:
        most = yield from _at_once(setting, waiting, most, held, resolved)
    for seed in waiting:
        with held(seed) as progress:
            manifest = train_run(setting, seed, progress, resolved)
        yield seed, manifest


def _at_once(
    setting: Setting, waiting: list[int], most: int, held: Held, resolved: dict[str, Any]
) -> Generator[tuple[int, dict[str, Any]], None, int]:
    """Train the first of `waiting`, up to `most`, and take them from there; returns how many may go at once next."""
    turns: list[Turn] = []
    with ExitStack() as stack:
        while waiting and len(turns) < most:
            seed = waiting[0]
            progress = stack.enter_context(held(seed))
            reserved = 0 if turns else _reserved(setting.device)
            try:
                turn = _begun(setting, seed, progress, resolved)
                if isinstance(turn, Turn) and not turns:
                    most = _room(turn, reserved, most)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                most = len(turns)  # it waits for the next time; where it is the first, train_run says what fits
                break
            waiting.pop(0)
            if isinstance(turn, Turn):
                turns.append(turn)
            else:
                yield seed, turn
        with StopSignal() as stop:
            for group in [turns] if len(turns) > 1 and _proven(turns) else [[turn] for turn in turns]:
                yield from _in_turn(group, stop)
    return most


def _begun(setting: Setting, seed: int, progress: Progress, resolved: dict[str, Any]) -> Turn | dict[str, Any]:
    """A run made and begun on a stream of its own; of one that is done already its manifest."""
    stream = None
    if setting.device.type == "cuda":
        torch.cuda.synchronize(setting.device)  # the data were made on another stream
        stream = torch.cuda.Stream(setting.device)
    with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
        run = prepare(setting, seed, resolved)
        if not isinstance(run, Run):
            return run
        run.loop.begin()
    return Turn(run, progress, stream)


def _reserved(device: torch.device) -> int:
    """Bytes of GPU memory that torch holds now; its peaks are counted anew from here on."""
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_reserved(device)


def _room(first: Turn, reserved: int, most: int) -> int:
    """How many seeds go at once, up to `most`, now that the first has begun; on a GPU it is said why it is but one.

    reserved: bytes before it began. What it took at most since, trying its steps, is what each of the others takes.
    """
    setting, loop = first.run.setting, first.loop
    if first.stream is None:
        return most
    why = None
    if not loop.captured:
        why = "its step is not captured"
    else:
        with first.on():
            drawn = draws(loop.step, loop.way, loop.done)
        if drawn:
            why = "its step draws random numbers"
    need = max(torch.cuda.max_memory_reserved(setting.device) - reserved, 1)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(setting.device)
    most = min(most, 1 + int(SPARE * free / need))
    if why or most == 1:
        setting.say(f"{setting.cell.label}: its seeds train one after another, since {why or 'memory holds but one'}.")
        return 1
    return most


def draws(step: Step, way: Callable[[int, float, float], None], first: int) -> bool:
    """Whether a step draws random numbers: it has moved the generator that it seeded. Nothing is trained by asking."""
    before = copies(step)
    try:
        bits_after(step, way, first)
    finally:
        put_back(step, before)
    cuda = step.device.type == "cuda"
    used = torch.cuda.default_generators[step.device.index or 0] if cuda else torch.default_generator
    fresh = torch.Generator(step.device)
    fresh.manual_seed(torch_seed(step.seed, f"step {first + len(TRIED) - 1}"))
    return not torch.equal(fresh.get_state(), used.get_state())


def _proven(turns: list[Turn]) -> bool:
    """Whether the runs may go at once: on one device without streams always, on streams if they prove it."""
    setting = turns[0].run.setting
    why = None if turns[0].stream is None else why_not_at_once(turns)
    if why is not None:
        setting.say(f"{setting.cell.label}: its seeds train one after another ({why}): slower, the same result.")
        return False
    for turn in turns:
        resolved = turn.run.resolved
        resolved["seeds_at_once"] = max(len(turns), resolved.get("seeds_at_once", 1))
    return True


def why_not_at_once(turns: Sequence[Turn]) -> str | None:
    """None if tried steps of all at once end in the bits that each gives alone; all tensors are left as they were."""
    before, alone, together = [], [], []
    for turn in turns:
        with turn.on():
            before.append(copies(turn.loop.step))
    try:
        for turn, tensors in zip(turns, before, strict=True):
            with turn.on():
                alone.append(bits_after(turn.loop.step, turn.loop.way, turn.loop.done))
                put_back(turn.loop.step, tensors)
        for number, (rate, progress) in enumerate(TRIED):  # nothing here waits: on a GPU the steps overlap
            for turn in turns:
                with turn.on():
                    turn.loop.way(turn.loop.done + number, rate, progress)
        for turn in turns:
            with turn.on():
                together.append(bits_of(turn.loop.step))
        why = None if together == alone else "at once they ended in other bits than alone"
    except Exception as error:  # whatever streams run into is said, and the runs do without
        why = said(error)
    for turn, tensors in zip(turns, before, strict=True):
        with turn.on():
            put_back(turn.loop.step, tensors)
    return why


def _in_turn(turns: list[Turn], stop: StopSignal) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train runs to their end, a step of each in turn; raises as train_seeds."""
    going = {turn.run.seed: (turn, turn.loop.advance(turn.progress, stop)) for turn in turns}
    seed = turns[0].run.seed
    try:
        while going:
            for seed, (turn, steps) in list(going.items()):
                with turn.on():
                    try:
                        next(steps)
                        continue
                    except StopIteration:
                        manifest = turn.run.finish(turn.loop.history[-1]["loss"])
                    except Diverged as diverged:
                        manifest = turn.run.finish(None, str(diverged))
                del going[seed]
                yield seed, manifest
    except BaseException as error:
        _save([turn for other, (turn, _) in going.items() if other != seed])
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            setting, fewer = turns[0].run.setting, max(1, len(turns) - 1)
            raise ResourceError(
                f"{setting.cell.label} seed {seed}: out of memory on {setting.device}, {len(turns)} at once; the same "
                f"command with CAPSBENCH_SEEDS_AT_ONCE={fewer} goes on from what is saved."
            ) from None
        raise


def _save(turns: list[Turn]) -> None:
    """Save runs that stop because another one did. What one of them runs into is said, for the other one is raised."""
    for turn in turns:
        loop = turn.loop
        if loop.done == loop.first:  # no step yet: what it went on from still lies there
            continue
        try:
            with turn.on():
                loop.save()
        except Exception as error:
            loop.say(f"{loop.folder}: not saved after step {loop.done} of {loop.steps} ({said(error)}).")
        else:
            loop.say(f"{loop.folder}: saved after step {loop.done} of {loop.steps}.")
