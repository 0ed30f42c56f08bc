"""When a device's memory does not suffice: one sentence, with the batch size that would."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import torch

from capsbench.errors import ResourceError

if TYPE_CHECKING:
    from capsbench.training.run import Setting

P = ParamSpec("P")
Answer = TypeVar("Answer")
# What plain RuntimeErrors say of it: torch on a CPU, and on a GPU what asks for memory past torch's own allocator.
NO_MEMORY = (
    "can't allocate memory", "CUDA error: out of memory", "CUDA driver error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
)  # fmt: skip
NO_PRIMITIVE = "could not create a primitive"  # its library's there, which says more of one that it does not have


def says_what_fits(
    work: Callable[Concatenate[Setting, int, P], Answer],
) -> Callable[Concatenate[Setting, int, P], Answer]:
    """Wrap work on a run `(setting, seed, ...)`: where memory does not suffice it raises ResourceError in words.

    The sentence names the largest batch, halved from the run's, of which a training step was tried and fitted.
    """

    @functools.wraps(work)
    def wrapped(setting: Setting, seed: int, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return work(setting, seed, *args, **kwargs)
        except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
            if not is_out_of_memory(error):
                raise
        # Not in the handler: there the failed work's tensors are still held by the traceback.
        raise ResourceError(_sentence(setting, seed))

    return wrapped


def is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Whether Python, NumPy or torch failed for want of memory, on a GPU or on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or str(error) == NO_PRIMITIVE:
        return True
    return any(words in str(error) for words in NO_MEMORY)


def batch_that_fits(fits: Callable[[int], bool], batch: int) -> int | None:
    """The first of batch/2, batch/4, ... 1 that fits; None if not even 1 does."""
    while batch > 1:
        batch //= 2
        if fits(batch):
            return batch
    return None


def _sentence(setting: Setting, seed: int) -> str:
    cell, batch = setting.cell, setting.cell.training.batch
    where = f"{cell.label} seed {seed}: out of memory on {setting.device} at batch {batch}"
    if setting.device.type == "cuda" and _fits(setting, seed, batch):  # a smaller batch would help nobody
        return (
            f"{where}, though a training step at that batch fits: what is measured along training shows the model more "
            "images at once, or something else held the memory; free the device, or take a larger one."
        )
    found = batch_that_fits(lambda smaller: _fits(setting, seed, smaller), batch)
    if found is None:
        return f"{where}, and no smaller batch fits either; free the device, or take a larger one."
    return (
        f"{where}; a training step fits at batch {found}, so free the device, or say batch: {found} in "
        f"{setting.house.path}, which is another experiment."
    )


def _fits(setting: Setting, seed: int, batch: int) -> bool:
    """Whether one training step at that batch fits. In float32, which needs no less than any other precision.

    On a CPU a process of its own tries it: after an allocation that failed, torch's library for CPUs may refuse batches
    that fit or crash, and where a system has too little memory it kills the process that asks for it.
    """
    if setting.device.type == "cuda":
        torch.cuda.empty_cache()
        return _step_fits(setting, seed, batch)
    setting = replace(setting, say=_nothing)  # a trial's words are not the run's; and a closure does not travel
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn, max_tasks_per_child=1) as trial:
        try:
            return trial.submit(_try_a_step, setting, seed, batch).result()
        except BrokenProcessPool:  # it was killed, or crashed
            return False


def _nothing(_: str) -> None:
    return None


def _try_a_step(setting: Setting, seed: int, batch: int) -> bool:
    torch.set_num_threads(setting.threads)
    return _step_fits(setting, seed, batch)


def _step_fits(setting: Setting, seed: int, batch: int) -> bool:
    from capsbench.training.digits import training_digits
    from capsbench.training.fusing import choose_routing
    from capsbench.training.run import make_stream, new_model
    from capsbench.training.step import Step

    cell = replace(setting.cell, training=setting.cell.training.model_copy(update={"batch": batch}))
    try:
        stream = make_stream(cell, training_digits(cell, setting.digits.train, seed), seed)
        model = new_model(setting, seed)
        if setting.device.type == "cuda":
            choose_routing(model, setting.device, lambda _: None)
        step = Step(model, cell.spec, stream, seed, "float32", cell.training.rate)
        step(0, cell.training.rate)
        if setting.device.type == "cuda":
            torch.cuda.synchronize(setting.device)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
