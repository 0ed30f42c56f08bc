"""Sources that were shown to give the same bits: what was trained by one need not be trained again by another.

The digest of a run's source changes with any of its code, also with what makes another precision or another device
faster. `benchmarks/same_bits.py` trains and evaluates a row with the source of two commits and compares every bit; what
was equal is written down in config/same-bits.json. It is shown row by row, in float32, on a CPU or on a CUDA GPU, for
runs on the same kind of device, and nothing else is believed: of another model, batch or size of image, for which code
may go another way, and in bf16 the digest alone decides. Of a change that no run on one kind of device reaches,
`benchmarks/same_program.py` shows that their program is the same, statement by statement: in every precision.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from capsbench.errors import PlanError
from capsbench.files import read_json
from capsbench.plan.load import config_folder
from capsbench.provenance import digest_of

Kind = Literal["training", "evaluation"]
KINDS: tuple[Kind, ...] = ("training", "evaluation")
WAYS = ("placement", "squeezed")  # options of a task that choose code: MultiMNIST's shifts, what two digits come to
DIGITS = ("train_images", "train_per_class")  # and of these, which digits are taken, whether it is said


def same_bits_file() -> Path:
    """Where it is written down which sources gave the same bits."""
    return config_folder() / "same-bits.json"


def what_trains(task: str, config: Mapping[str, Any]) -> str:
    """Digest of what decides which code trains a run of this `config`: task, model, batch, size of images, data set.

    How long it trains, with which rate and from which seed are left out: that was compared for a few steps of one seed.
    So are a task's numbers, but not its words, each of which takes another way through the code, as a period of the
    rate that is a number does beside a scaled one.
    """
    of_task, of_training = config.get("task") or {}, config.get("training") or {}
    ways = {key: of_task[key] for key in WAYS if key in of_task}
    ways |= {key: True for key in DIGITS if of_task.get(key) is not None}
    if isinstance(of_training.get("decay_period"), int | float):
        ways["period"] = "a number"
    what = [task, config.get("variant"), of_task.get("image"), of_training.get("batch"), config.get("dataset")]
    return digest_of([*what, ways] if ways else what)


def same_sources(digest: str, manifest: Mapping[str, Any], of: Kind = "training") -> set[str]:
    """Digests of the sources that give this manifest's run the bits that the source of `digest` gives it; it is one.

    `of`: whether they are sources that train it or that evaluate it. Of a run that is not float32 no bits have been
    compared: its others have the same program. One that a GPU trained may have been evaluated there or on a CPU, so its
    evaluation must have been shown on both; one that a CPU trained is taken to be evaluated on one. Raises PlanError:
    the file is damaged.
    """
    resolved, run, config = (manifest.get(key) for key in ("resolved", "run", "config"))
    if not (isinstance(resolved, dict) and isinstance(run, dict) and isinstance(config, dict)):
        return {digest}
    if not all(isinstance(config.get(part) or {}, dict) for part in ("task", "training")):
        return {digest}
    device, precision = str(resolved.get("device")).partition(":")[0], resolved.get("precision")
    if precision is None or device not in ("cpu", "cuda"):
        return {digest}
    devices = ("cpu", "cuda") if (of, device) == ("evaluation", "cuda") else (device,)
    what, shown = what_trains(str(run.get("task")), config), _shown(same_bits_file(), precision == "float32")
    return set.intersection(*(_reached(digest, shown.get((of, one, what), {})) for one in devices))


def _reached(digest: str, pairs: Mapping[str, set[str]]) -> set[str]:
    """A source and those that were found equal to it, from one to the next."""
    found, waiting = {digest}, [digest]
    while waiting:
        new = pairs.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


@functools.cache
def _shown(path: Path, by_bits: bool) -> dict[tuple[Kind, str, str], dict[str, set[str]]]:
    """By kind, device (cpu or cuda) and `what_trains`: the sources that one was compared with and found equal to.

    by_bits: with those that gave the same bits, in float32, not only those that are the same program. Raises PlanError.
    """
    shown: dict[tuple[Kind, str, str], dict[str, set[str]]] = {}
    try:
        for change in read_json(path)["changes"]:
            for run in change["runs"] if by_bits or "shown" in change else ():
                for kind in KINDS:
                    if kind == "evaluation" and kind not in run:
                        continue  # of a change that left the evaluation as it was
                    before, after = run[kind]
                    pairs = shown.setdefault((kind, change["device"], run["what_trains"]), {})
                    pairs.setdefault(before, set()).add(after)
                    pairs.setdefault(after, set()).add(before)
    except FileNotFoundError:
        return shown
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{path} is not as `benchmarks/same_bits.py` writes it ({type(error).__name__}: {error}); take it from the "
            "repository again."
        ) from None
    return shown
