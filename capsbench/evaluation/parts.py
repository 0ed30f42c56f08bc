"""An evaluation of many examples that is stored in parts, so that one that is stopped goes on from its last part."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capsbench.errors import ResourceError
from capsbench.files import whole_file
from capsbench.training.loop import StopSignal, checkpoint_seconds

Arrays = dict[str, NDArray[Any]]


def in_parts(folder: Path, digest: str, count: int, answers: Callable[[int], Iterator[tuple[int, Arrays]]]) -> Arrays:
    """The answers to `count` examples, each array joined along its first axis.

    What there is of them is stored under checkpoint/ in a run's `folder` every minute (CAPSBENCH_CHECKPOINT_SECONDS),
    and on SIGTERM or SIGINT; `forget` removes it, once metrics are written. Where the machine stays the same, an
    evaluation that was stopped ends in the same bits.

    Args:
        digest: of this evaluation; what another one stored is not read.
        answers: from an example on, batch by batch: where the batch ends, and its arrays, the same names in each.

    Raises:
        ResourceError: a signal stopped it; the same call goes on.
    """
    place = folder / "checkpoint" / f"evaluation-{digest[:16]}"
    parts, done = _stored(place)
    fresh: list[Arrays] = []
    interval, saved = checkpoint_seconds(), time.monotonic()
    with StopSignal() as stop:
        for end, batch in answers(done):
            fresh.append(batch)
            if not stop.name and (time.monotonic() - saved < interval or end == count):
                continue
            parts.append(_joined(fresh))
            _store(place / f"{end:09}.npz", parts[-1])
            fresh, saved = [], time.monotonic()
            if stop.name:
                raise ResourceError(
                    f"{folder}: evaluation stopped by {stop.name}, saved after {end} of {count}; "
                    "the same command goes on from there."
                )
    return _joined([*parts, *fresh])


def forget(folder: Path) -> None:
    """Remove all parts of a trained run's evaluations: it has no other checkpoint any more."""
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def _joined(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _store(path: Path, arrays: Arrays) -> None:
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _stored(place: Path) -> tuple[list[Arrays], int]:
    """The parts in order, and where the last one ends; one that cannot be read, or does not begin where the one before
    it ends, is removed with those after it, the last one first."""
    parts: list[Arrays] = []
    done = 0
    paths = sorted(place.glob("*.npz"))
    for number, path in enumerate(paths):
        try:
            with np.load(path, allow_pickle=False) as stored:
                part = dict(stored)
            if max(map(len, part.values())) != int(path.stem) - done:  # some arrays are of the first examples alone
                raise ValueError(f"{path} does not go on after {done}")
        except Exception:  # what zipfile, its decompressors and NumPy raise on damaged bytes has a dozen kinds
            for later in reversed(paths[number:]):
                later.unlink()
            break
        parts.append(part)
        done = int(path.stem)
    return parts, done
