"""The claims that results are judged by: config/claims.yaml, written before the runs and checked like a plan."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, FiniteFloat, ValidationError, field_validator, model_validator

from capsbench.errors import PlanError, nearest
from capsbench.plan.axes import AXIS_VALUE
from capsbench.plan.load import config_folder, load_variants, sentence_of
from capsbench.plan.schema import SAFE_NAME
from capsbench.plan.spec import Spec, Strict
from capsbench.plan.tasks import TASKS
from capsbench.plan.yaml_file import read_yaml
from capsbench.provenance import digest_of

_MEASURES = ("mse", "psnr", "ssim", "dice", "iou", "dice_ink", "iou_ink", "exclusive_iou", "overlap_iou")
_PAIRS = ("top2_accuracy", "both_above_half_accuracy")
METRICS: dict[str, dict[str, tuple[str, ...]]] = {  # what a claim may be about: task, condition, metric
    "mnist": {"test": ("error", "train_test_gap", "ece", "overconfidence")},
    "affnist": {"matched": ("accuracy",), "converged": ("accuracy", "held_out_accuracy")},
    "multimnist": {
        "test": (
            "error",
            "half_credit_error",
            "leakage",
            *(f"{name}_{of}" for name in (*_MEASURES, "assignment_accuracy") for of in ("true", "predicted")),
            *(f"baseline_{name}" for name in (*_MEASURES, "assignment_accuracy")),
        )
    },
    "two_digit": {
        condition: (
            *_PAIRS,
            *(f"final_{name}" for name in _PAIRS),
            "final_exact_above_half_accuracy",
            "single_error",
        )
        for condition in ("56x28", "28x56")
    },
}
CROSSED = {  # whose test digits can be drawn again from predictions.npz
    ("mnist", "test", "error"),
    ("affnist", "converged", "accuracy"),
    ("multimnist", "test", "error"),
    ("multimnist", "test", "half_credit_error"),
    *(("two_digit", condition, name) for condition, names in METRICS["two_digit"].items() for name in names[:4]),
}
PARAMETERS = "parameters"  # of a variant at its task's size, from manifests: of every task, under no condition

Kind = Literal["value", "direction", "no_difference"]
Data = Literal["mnist", "fashion-mnist", "kmnist", "affnist", "affnist-synth"]
DATA_OF_AFFNIST = ("affnist", "affnist-synth")


class CellName(NamedTuple):
    """`task/variant` of a claim; of an axis too, `mnist/capsnet-r3-recon+r10`."""

    task: str
    variant: str


class Claim(Strict):
    """One claim: what is said, where, and by which rule it is judged."""

    id: str
    sentence: str
    source: str
    kind: Kind
    family: str  # p values are corrected for all claims of a family (Holm)
    cell: str | None = None  # task/variant that the claim is about
    baseline: str | None = None  # task/variant that it is compared with; for two metrics of one cell, none
    condition: str | None = None
    metric: str | None = None
    baseline_metric: str | None = None  # compare `metric` with this one in the same runs
    data: Data | None = None  # on which the cells must have been scored
    direction: Literal["less", "greater"] | None = None  # of `cell` against the baseline, or against `expected`
    expected: FiniteFloat | None = None  # the published value; for a direction, the constant to be beaten
    delta: Annotated[FiniteFloat, Field(gt=0)] | None = None  # value: tolerance; no_difference: margin of equivalence
    test: Literal["student", "welch", "paired", "crossed"] | None = None
    plan: str | tuple[str, ...] | None = None  # whose results judge it for good; its family's where it has no own
    # of runs that suggested it: results with any of them do not judge it
    known_seeds: Annotated[list[int], Field(min_length=1)] | None = None
    untested: str | None = None  # why the suite cannot judge it; then nothing else is said

    @field_validator("plan", mode="before")
    @classmethod
    def _one_plan_or_several(cls, said: Any) -> Any:
        names = said if isinstance(said, list) else [said]
        fits = names and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        if said is not None and not fits:
            raise ValueError("plan must be the name of a plan, or a list of names without repetition")
        return tuple(said) if isinstance(said, list) else said

    @model_validator(mode="after")
    def _says_what_its_kind_needs(self) -> Self:
        """Each kind has its keys, and no key stands there without an effect."""
        said = {name for name in _JUDGING if getattr(self, name) is not None}
        if self.untested is not None:
            wanted, why = set(said & {"expected"}), "a claim that is untested"
        elif self.kind == "value":
            wanted, why = {"cell", "expected", "delta", "test"}, "a value claim"
        elif self.kind == "no_difference":
            wanted, why = {"cell", "baseline", "delta", "test"}, "a claim of no difference"
        else:
            other = {"baseline", "baseline_metric", "expected"} & said
            if len(other) != 1:
                raise ValueError("a direction claim needs one of baseline, baseline_metric and expected")
            wanted, why = {"cell", "direction", "test", *other}, "a direction claim"
        if self.untested is None:
            wanted |= {"metric", "data"} | (set() if self.metric == PARAMETERS else {"condition"})
            wanted |= {"known_seeds"} & said
        if missing := sorted(wanted - said):
            raise ValueError(f"{why} needs {missing[0]}")
        if extra := sorted(said - wanted):
            raise ValueError(f"{why} takes no {extra[0]}")
        if self.untested is None:
            self._has_its_test()
        return self

    def _has_its_test(self) -> None:
        of_two = ("welch", "crossed", "paired")  # paired: where a seed gives both cells the same weights and batches
        fits = of_two if self.baseline else ("paired",) if self.baseline_metric else ("student",)
        if self.test not in fits:
            raise ValueError(f"test must be {' or '.join(fits)} here, not {self.test}")

    def sides(self) -> list[CellName]:
        """The cells that it names, the claimed one first."""
        return [CellName(*name.split("/", 1)) for name in (self.cell, self.baseline) if name]

    @property
    def plans(self) -> tuple[str, ...]:
        """The plans in whose results it is judged for good; none: in any."""
        return (self.plan,) if isinstance(self.plan, str) else self.plan or ()


_JUDGING = tuple(set(Claim.model_fields) - {"id", "sentence", "source", "kind", "family", "plan", "untested"})


@dataclass(frozen=True)
class Claims:
    """config/claims.yaml."""

    path: Path
    families: dict[str, str]  # name -> what the family is about, in the file's order
    claims: list[Claim]
    digest: str  # of what the claims say; not of comments and layout


@functools.cache
def load_claims(path: Path | None = None) -> Claims:
    """Read and check the claims. Raises PlanError: one sentence naming the file, the key and the nearest valid word."""
    file = path or config_folder() / "claims.yaml"
    raw = read_yaml(file, large=True)
    if unknown := [key for key in raw if key not in ("families", "plans", "claims")]:
        raise PlanError(f"{file}: unknown key '{unknown[0]}'{nearest(unknown[0], ('families', 'plans', 'claims'))}")
    families, plans, values = raw.get("families"), raw.get("plans", {}), raw.get("claims")
    if not isinstance(families, dict) or not all(isinstance(words, str) for words in families.values()):
        raise PlanError(f"{file}: families must be a mapping of names to sentences.")
    if not isinstance(plans, dict) or not all(isinstance(home, str | list) for home in plans.values()):
        raise PlanError(f"{file}: plans must be a mapping of families to one plan or a list of plans.")
    if lost := [name for name in plans if name not in families]:
        raise PlanError(f"{file}: plans.{lost[0]}: no family {lost[0]!r}{nearest(lost[0], families)}")
    if not isinstance(values, list) or not values:
        raise PlanError(f"{file}: claims must be a list of at least one claim.")
    shipped = load_variants()
    claims: list[Claim] = []
    for number, value in enumerate(values, start=1):
        claim = _claim(_at_home(value, plans), file, number)
        _check(claim, f"{file}: claims.{claim.id}", families, shipped)
        if claim.id in {other.id for other in claims}:
            raise PlanError(f"{file}: claims.{claim.id} appears twice; choose another id.")
        claims.append(claim)
    if idle := [name for name in families if name not in {claim.family for claim in claims}]:
        raise PlanError(f"{file}: families.{idle[0]} has no claim; remove it.")
    digest = digest_of([families, [claim.model_dump() for claim in claims]])
    return Claims(file, families, claims, digest)


def _at_home(value: Any, plans: dict[str, Any]) -> Any:
    """A claim's words, with its family's plans where it names none."""
    if not isinstance(value, dict) or value.get("plan") is not None or "untested" in value:
        return value
    home = plans.get(str(value.get("family")))
    return value if home is None else {**value, "plan": home}


def _claim(value: Any, file: Path, number: int) -> Claim:
    if not isinstance(value, dict):
        raise PlanError(f"{file}: claims, number {number}, is {value!r}, not a mapping of keys to values.")
    name = value.get("id")
    if not isinstance(name, str) or not SAFE_NAME.fullmatch(name):
        raise PlanError(
            f"{file}: claims, number {number}: id is {name!r}, not a name: letters, digits, '_', '-', '+' and single "
            "dots only."
        )
    try:
        return Claim.model_validate(value)
    except ValidationError as error:
        raise sentence_of(error, Claim, file, f"claims.{name}") from None


def _check(claim: Claim, place: str, families: dict[str, str], shipped: dict[str, Spec]) -> None:
    """What a claim names exists. Raises PlanError."""
    if claim.family not in families:
        raise PlanError(f"{place}.family: no family {claim.family!r}{nearest(claim.family, families)}")
    if claim.untested is not None:
        return
    if lost := [name for name in claim.plans if not (config_folder() / f"{name}.yaml").is_file()]:
        raise PlanError(f"{place}.plan: there is no config/{lost[0]}.yaml.")
    for key in ("cell", "baseline"):
        name = getattr(claim, key)
        if name is not None:
            _check_cell(name, f"{place}.{key}", shipped)
    tasks = {side.task for side in claim.sides()}
    if len(tasks) > 1:
        raise PlanError(
            f"{place}: cell and baseline belong to different tasks, {' and '.join(sorted(tasks))}; compare within one."
        )
    (task,) = tasks
    if (claim.data in DATA_OF_AFFNIST) != (task == "affnist"):
        of = DATA_OF_AFFNIST if task == "affnist" else ("mnist", "fashion-mnist", "kmnist")
        raise PlanError(f"{place}.data is {claim.data!r}, but {task} is scored on {', '.join(of)}.")
    if claim.metric == PARAMETERS:
        return
    conditions = METRICS[task]
    if claim.condition not in conditions:
        raise PlanError(
            f"{place}.condition: {task} has no condition {claim.condition!r}{nearest(claim.condition, conditions)}"
        )
    for key in ("metric", "baseline_metric"):
        name = getattr(claim, key)
        if name is not None and name not in conditions[claim.condition]:
            raise PlanError(f"{place}.{key}: {task} has no metric {name!r}{nearest(name, conditions[claim.condition])}")
    if claim.test == "crossed" and (task, claim.condition, claim.metric) not in CROSSED:
        raise PlanError(
            f"{place}.test: {claim.metric} under {claim.condition} has no stored answers to single images; use welch."
        )


def _check_cell(name: str, place: str, shipped: dict[str, Spec]) -> None:
    task, _, variant = name.partition("/")
    if not variant:
        raise PlanError(f"{place} is {name!r}, not task/variant.")
    if task not in TASKS:
        raise PlanError(f"{place}: no task {task!r}{nearest(task, TASKS)}")
    variant, axis, value = variant.partition("+")
    if variant not in shipped:
        raise PlanError(f"{place}: no variant {variant!r}{nearest(variant, shipped)}")
    if axis and not AXIS_VALUE.fullmatch(value):
        raise PlanError(
            f"{place}: {name!r} is not a row of an axis; write {task}/{variant}+n100, +r5, +tuned or +bf16."
        )
    if reason := TASKS[task](variants=[variant]).unfit(shipped[variant]):
        raise PlanError(f"{place}: variant {variant} {reason}.")
