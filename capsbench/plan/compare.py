"""Which rows of a plan are compared with which, and what differs between them: read off the resolved configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capsbench.plan.routings import CUSTOM_PASSES, ROUTINGS, is_custom
from capsbench.plan.tuning import DECAYS, RATES
from capsbench.plan.variants import RoutingOptions

if TYPE_CHECKING:
    from capsbench.plan.runs import Cell, House

# What makes up a model of one kind has no counterpart in another kind: `model` stands for all of it.
OF_THE_MODEL = frozenset({"channels", "kernel", "kernels", "dense", "head", "decoder", "primary_types"})
NOT_SAID = "none"
JUDGED = {  # on which of the held-out digits tuning judges a trial (capsbench/training/tune.py)
    "affnist": " (each at one of its places)",
    "multimnist": " (put together to as many pairs)",
    "two_digit": " (single digits; pairs played no part, so a tuned row may do worse on them)",
}


def comparisons(house: House) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """What tables `ablation` and `ladder` compare, by table and task: row, reference, and what differs."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {"ablation": {}, "ladder": {}}
    for name, task in house.plan.tasks.given().items():
        cells = {cell.variant: cell for cell in house.cells if cell.task == name}
        pairs = []
        for cell in cells.values():
            other = task.references.get(cell.variant) or cell.base or task.reference
            if other is not None and other != cell.variant:
                pairs.append((cell, cells[other]))
        rungs = [cells[rung] for rung in task.ladder]
        steps = list(zip(rungs, [None, *rungs], strict=False))
        if pairs:
            found["ablation"][name] = [_entry(house, cell, other) for cell, other in pairs]
        if steps:
            found["ladder"][name] = [_entry(house, cell, below) for cell, below in steps]
    return {table: tasks for table, tasks in found.items() if tasks}


def _entry(house: House, cell: Cell, other: Cell | None) -> dict[str, Any]:
    return {
        "variant": cell.folder_name,
        "reference": other.folder_name if other else None,
        "differs": differences(house, cell, other) if other else [],
    }


def differences(house: House, cell: Cell, other: Cell) -> list[dict[str, Any]]:
    """The factors in which two rows differ: `factor`, `value`, `reference`, and `own` for what came with the routing.

    Another routing brings its own passes, squash and normaliser; another model brings its own layers. Both are named by
    the choice that brought them, and everything else that differs is a factor of its own.
    """
    mine, theirs = _said(house, cell), _said(house, other)
    kinds = mine["model"] != theirs["model"]
    own_layers = OF_THE_MODEL
    if "routing" not in mine or "routing" not in theirs:  # passes of a layer that the other kind has none like
        own_layers |= {"iterations"}
    keys = [key for key in mine if key in theirs and key != "capsules"]  # which a report asks, and no training
    rerouted = mine.get("routing") != theirs.get("routing")
    facts = ROUTINGS.get(str(mine.get("routing")))
    outside = any(is_custom(str(side.get("routing", ""))) for side in (mine, theirs))
    own: dict[str, Any] = {"iterations": CUSTOM_PASSES}  # of one from outside nothing else is known
    if facts:
        own = {"iterations": facts.passes, "squash": facts.squash, "normaliser": facts.normaliser}
    found = []
    for key in keys:
        value, reference = mine.get(key), theirs.get(key)
        if value == reference or (kinds and key in own_layers):
            continue
        # None is no choice: such a routing may well have a softmax of its own, and one from outside its own squash
        if (key == "normaliser" or (key == "squash" and outside)) and None in (value, reference):
            continue
        brought = not kinds and rerouted and key in RoutingOptions.OF_THE_ROUTING
        found.append(
            {
                "factor": key,
                "value": _word(value),
                "reference": _word(reference),
                "own": brought and (value == own.get(key) or (key == "routing_options" and not value)),
            }
        )
    if cell.waits or other.waits:  # what tuning will choose is not known yet
        found = [f for f in found if f["factor"] not in ("rate", "decay", "decay_period")]
        value, reference = (_tuning(side) for side in (cell, other))
        if value != reference:
            found.append({"factor": "tuning", "value": value, "reference": reference, "own": False})
    return found


def _tuning(cell: Cell) -> str:
    """Whether a row is tuned, beside one whose tuning has not chosen."""
    return "not yet" if cell.waits else "done" if cell.tuned is not None else NOT_SAID


def _said(house: House, cell: Cell) -> dict[str, Any]:
    """A cell's config as one flat mapping, without choices that decide nothing in it; epochs as the steps they make."""
    config = cell.config()
    variant = {key: value for key, value in config["variant"].items() if key not in cell.spec.idle()}
    variant.setdefault("reconstruction", NOT_SAID)  # a kind of model without such a key has no decoder
    training = {key: value for key, value in config["training"].items() if key not in ("epochs", "steps")}
    training["steps"] = cell.steps(house.epoch_images(cell.options))
    if training["decay_period"] != "scaled":
        training["decay_period"] = f"{training['decay_period']} steps"
    task = {key: "all" if value is None else value for key, value in config["task"].items()}
    return {**variant, **training, **task}


def _word(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "-".join(map(str, value)) or NOT_SAID
    if isinstance(value, dict):
        return ", ".join(f"{key} {_word(entry)}" for key, entry in value.items()) or NOT_SAID
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else f"{value:,}"
    return NOT_SAID if value is None else str(value)


def same_titles(house: House) -> list[str]:
    """A sentence for each title that several variants of a plan bear: tables then call these by their names."""
    bearers: dict[str, list[str]] = {}
    for variant, title in dict.fromkeys((cell.variant, cell.spec.title or cell.variant) for cell in house.cells):
        bearers.setdefault(title, []).append(variant)
    return [
        f"{' and '.join(variants)} have the same title, {title!r}, so tables show their names; give each its own."
        for title, variants in bearers.items()
        if len(variants) > 1
    ]


def notes(house: House) -> dict[str, list[str]]:
    """Sentences for the caption of each task's tables: what was tuned, what rows on few digits are, what is resized."""
    found: dict[str, list[str]] = {}
    for name in house.plan.tasks.given():
        cells = [cell for cell in house.cells if cell.task == name]
        sentences = [
            *_of_tuning(house, [cell for cell in cells if cell.tuned is not None]),
            *_of_few([cell for cell in cells if cell.base and cell.options.train_per_class is not None]),
            *(_of_one_size(cells) if name == "two_digit" else []),
            *_of_pairs(cells),
        ]
        if sentences:
            found[name] = sentences
    return found


def _of_tuning(house: House, cells: list[Cell]) -> list[str]:
    if not cells:
        return []
    trial = house.trials(cells[0])[0]
    training, held_out = trial.training, trial.held_out
    length = f"{training.epochs:g} epochs" if training.epochs else f"{training.steps:,} steps"
    seeds = ", ".join(map(str, trial.seeds))
    rates, decays = (", ".join(f"{value:g}" for value in values) for values in (RATES, DECAYS))
    periods = round(cells[0].options.FULL_STEPS / cells[0].options.DECAY_PERIOD)
    digits = f"{held_out:,} held-out training digits{JUDGED.get(cells[0].task, '')}"
    sentences = [
        f"Rows called tuned: of the learning rates {rates} and the decays {decays} a period ({periods} periods a run), "
        f"the pair with the lowest error on {digits}, after {length} (seeds {seeds}, which no row uses); test data "
        f"decided nothing, and every variant got the same grid."
    ]
    points = [(cell.folder_name, cell.tuned.point) for cell in cells if cell.tuned and cell.tuned.point]
    chosen = [f"{name} {point.rate:g} and {point.decay:g}" for name, point in points]
    return [*sentences, f"Chosen: {'; '.join(chosen)}."] if chosen else sentences


def _of_few(cells: list[Cell]) -> list[str]:
    if not cells:
        return []
    return [
        "Rows on few digits a class train for as many steps as on all; with one seed every variant gets the same "
        "digits, and the smaller sets are parts of the larger."
    ]


def _of_pairs(cells: list[Cell]) -> list[str]:
    if not any(cell.spec.train_on == "pairs" for cell in cells):
        return []
    return ["Rows that are trained on pairs see them one above the other: side by side they meet for the first time."]


def _of_one_size(cells: list[Cell]) -> list[str]:
    """Which rows of the two-digit task do not see what the others see, and with which loss they train.

    Where the plan squeezes every row's pairs, none differs, and a reduction says so.
    """
    if any(getattr(cell.options, "squeezed", False) for cell in cells):
        return []
    own = [cell for cell in cells if not cell.spec.takes_any_size()]
    if not own:
        return []
    height, width = cells[0].options.IMAGE
    rows = []
    for cell in own:
        spec = cell.spec
        loss = f"lambda {spec.down_weight:g}" if spec.loss == "margin" else f"{spec.loss} loss"
        drawn = "" if getattr(spec, "reconstruction", "none") == "none" else ", reconstruction"
        rows.append(f"{spec.title or cell.variant} ({loss}{drawn})")
    return [
        f"Pairs are resized to {height}x{width} for rows whose model takes images of one size alone; these keep the "
        f"loss that they have on MNIST: {'; '.join(rows)}."
    ]
