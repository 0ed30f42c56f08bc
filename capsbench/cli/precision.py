"""In which precision a row's runs train where the plan leaves that open: as those of them did that were begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capsbench.data.affnist_place import measured_on
from capsbench.files import read_json
from capsbench.plan.done import run_digests

if TYPE_CHECKING:
    from capsbench.training.run import Setting


def precision_of(setting: Setting, seed: int) -> dict[str, Any]:
    """`precision` and `precision_timings` of a cell's seeds, which train alike; those of `seed` are timed where none is
    known.

    A seed that was trained on the same kind of device decides, then one that was stopped, wherever that was: it goes on
    in its own. Nothing is timed on a device that computes in float32 alone.
    """
    from capsbench.training.precisions import precisions
    from capsbench.training.run import choose_precision

    computed, wanted = precisions(setting.device), setting.cell.training.precision
    if wanted == "auto":
        if found := _trained(setting) or _begun(setting):
            return found
        if len(computed) == 1:
            return {"precision": computed[0], "precision_timings": None}
    elif wanted not in computed:
        setting.say(f"{setting.cell.label}: this CPU has no {wanted}, and torch emulates it: steps may take minutes")
    precision, timings = choose_precision(setting, seed)
    return {"precision": precision, "precision_timings": timings}


def _trained(setting: Setting) -> dict[str, Any] | None:
    cell = setting.cell
    for seed in cell.seeds:
        try:
            manifest = read_json(setting.house.run_folder(cell, seed) / "manifest.json")
            resolved, config = manifest["resolved"], manifest["digests"]["config"]
            if config == cell.config_digest(seed) and resolved["device"].startswith(setting.device.type):
                return {key: resolved[key] for key in ("precision", "precision_timings")}
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def _begun(setting: Setting) -> dict[str, Any] | None:
    from capsbench.training.checkpoint import load_checkpoint

    cell = setting.cell
    for seed in cell.seeds:
        digests = run_digests(setting.house, cell, seed, setting.dataset["digest"], measured_on(setting.house, cell))
        folder = setting.house.run_folder(cell, seed) / "checkpoint"
        checkpoint = load_checkpoint(folder, digests["run"], lambda _: None)
        if checkpoint is not None and {"precision", "precision_timings"} <= checkpoint.meta.keys():
            return {key: checkpoint.meta[key] for key in ("precision", "precision_timings")}
    return None
