"""Read plans and variants; every mistake becomes one sentence with the file, the key and the nearest valid word."""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from capsbench.errors import PlanError, nearest
from capsbench.plan.axes import AXIS_VALUE
from capsbench.plan.custom import check_custom
from capsbench.plan.digits import check_probe_images, check_training_digits
from capsbench.plan.outside import code_named
from capsbench.plan.routings import CUSTOM_ROUTING, is_custom
from capsbench.plan.schema import SAFE_NAME, Plan
from capsbench.plan.spec import Said
from capsbench.plan.task import TaskPlan, TrainingPart
from capsbench.plan.variants import SPECS, RoutingOptions, Spec, spec_of
from capsbench.plan.yaml_file import read_yaml

CUSTOM_BASE = "capsnet-r3-recon"  # what a bare my_file:my_routing in a plan changes the routing of


def config_folder() -> Path:
    """The folder of plans and variants: config/ of a clone, or the copy inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "config"
    return installed if installed.is_dir() else package.parent / "config"


def _known_keys(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """The keys valid at `loc` inside a pydantic model, for the nearest-word hint."""
    for part in loc:
        args = typing.get_args(model) if isinstance(model, types.UnionType) or typing.get_origin(model) else ()
        choices = [m for m in (model, *args) if isinstance(m, type) and issubclass(m, BaseModel)]
        field = next((m.model_fields[str(part)] for m in choices if str(part) in m.model_fields), None)
        if field is not None:
            model = field.annotation
    args = (model, *typing.get_args(model))
    return [key for m in args if isinstance(m, type) and issubclass(m, BaseModel) for key in m.model_fields]


def sentence_of(
    error: ValidationError, model: Any, file: Path, prefix: str = "", also: tuple[str, ...] = ()
) -> PlanError:
    """The first of pydantic's complaints as one sentence. `also`: keys that may be said beside the model's own."""
    first = min(error.errors(), key=lambda e: (e["type"] != "extra_forbidden", len(e["loc"])))
    loc = first["loc"]
    key = ".".join(str(part) for part in loc)
    where = ".".join(part for part in (prefix, key) if part) or "the whole"
    if first["type"] == "extra_forbidden":
        known = [*_known_keys(model, loc[:-1]), *(also if len(loc) == 1 else ())]
        place = ".".join(part for part in (prefix, *map(str, loc[:-1])) if part)
        return PlanError(f"{file}: unknown key '{loc[-1]}'{f' in {place}' if place else ''}{nearest(loc[-1], known)}")
    if first["type"] == "missing":
        return PlanError(f"{file}: key '{where}' is missing.")
    if first["type"] == "literal_error":
        words = re.findall(r"'([^']*)'", first["ctx"]["expected"])
        return PlanError(f"{file}: {where} is {first['input']!r}{nearest(first['input'], words)}")
    message = re.sub(r"^(Value error, |Input )", "", first["msg"])
    message = re.sub(r"valid dictionary( or instance of \w+)?", "mapping of keys to values", message)
    message = re.sub(r"^\w+ (should have at \w+ \d+ items?) after validation.*", r"\1", message)
    if first["type"] == "value_error":
        end = "" if message.endswith(("?", ".")) else "."
        return PlanError(f"{file}: {f'{where}: ' if key or prefix else ''}{message}{end}")
    return PlanError(f"{file}: {where} is {first['input']!r}, but {message[0].lower()}{message[1:]}.")


def build_spec(values: dict[str, Any], file: Path, name: str, own: Collection[str] | None = None) -> Spec:
    """A checked spec from its mapping. Raises PlanError naming file, variant and key.

    own: the keys that the variant says itself (all, when not said), which have to do something. What it has of its base
    may be put out of work by them: without a decoder there is no mask, and none should have to be unsaid.
    """
    model = values.get("model")
    if model is None:
        raise PlanError(f"{file}: variant {name} names neither `base`, the variant that it changes, nor `model`.")
    kind = spec_of(model) if isinstance(model, str) else None
    if kind is None:
        hint = "; one of your own is my_file:MyModel." if {".", "_", "/"} & set(str(model)) else nearest(model, SPECS)
        raise PlanError(f"{file}: variant {name}: model is {model!r}{hint}")
    if isinstance(values.get("share"), str) and model == "two-digit" and values["share"] != "all":
        raise PlanError(
            f"{file}: variant {name}: share must be 'all', the only sharing that works with images of any size."
        )
    if own and "base" in own and is_custom(model) and values.keys() - kind.model_fields.keys():
        raise PlanError(
            f"{file}: variant {name}: model {model} is from outside the suite, and its base is not; leave `base` out."
        )
    if own and "width" in own and is_custom(model):
        raise PlanError(f"{file}: variant {name}: its width is the plan's or its task's; say it there, under `widths`.")
    try:
        spec = kind.model_validate(values)
    except ValidationError as error:
        raise sentence_of(error, kind, file, name, ("base", "training")) from None
    if own is None and values.keys() >= spec.model_dump(exclude=set(spec.WORDS)).keys():
        own = ()  # every key of it is there: a run's manifest says them, or a file of weights, and nobody wrote them
    for key, why in spec.idle().items():
        if key in (values if own is None else own) and values[key] != kind.model_fields[key].default:
            raise PlanError(f"{file}: variant {name}: {key} does nothing, since {why}; leave it out.")
    return spec


def changed(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A variant's values: its base's and its own. Another routing comes with its own passes, squash and options.

    It is called by its own name where it says no title: two rows of a table would else be called the same. A routing
    from outside is not of its base's source.
    """
    base = {key: value for key, value in base.items() if key != "title"}
    if own.get("routing", base.get("routing", "dynamic")) != base.get("routing", "dynamic"):
        base = {key: value for key, value in base.items() if key not in RoutingOptions.OF_THE_ROUTING}
        if is_custom(str(own.get("routing"))):  # nobody published it with the base
            base.pop("source", None)
    return base | own


def resolve_variants(raw: dict[str, Any], file: Path, known: dict[str, Spec] | None = None) -> dict[str, Spec]:
    """Specs of every variant in `raw`, each `base` looked up in `raw` first and then in `known`."""
    specs: dict[str, Spec] = {}

    def resolve(name: str, path: tuple[str, ...]) -> dict[str, Any]:
        if name in path:
            raise PlanError(f"{file}: variant {name} is its own base ({' -> '.join((*path, name))}).")
        values = raw[name]
        if not isinstance(values, dict):
            raise PlanError(f"{file}: variant {name} is {values!r}, not a mapping of keys to values.")
        if "base" not in values:
            return dict(values)
        base, own = values["base"], {key: value for key, value in values.items() if key != "base"}
        if isinstance(base, str) and base in raw and base != name:
            return changed(resolve(base, (*path, name)), own)
        if base == name:
            raise PlanError(f"{file}: variant {name} is its own base; name the variant that it changes.")
        if known and isinstance(base, str) and base in known:
            return changed(known[base].model_dump(), own)
        raise PlanError(
            f"{file}: variant {name}: base {base!r} does not exist{nearest(base, {*raw, *(known or {})} - {name})}"
        )

    for name in raw:
        if not SAFE_NAME.fullmatch(name):
            raise PlanError(
                f"{file}: {name!r} is not a name for a variant: letters, digits, '_', '-', '+' and single dots only."
            )
        specs[name] = build_spec(resolve(name, ()), file, name, own=raw[name])
        _refuse_empty(raw[name], specs[name], f"{file}: variant {name}")
    return specs


def _refuse_empty(own: dict[str, Any], spec: Spec, place: str) -> None:
    """Raise PlanError where a variant names a key of its routing's and no value: it would get the routing's own.

    Where the routing has none, as `squash` of EM, null says what is so; pydantic names an empty key of any other kind.
    """
    if empty := [key for key, value in own.items() if value is None and getattr(spec, key, None) is not None]:
        raise PlanError(f"{place}: {empty[0]} {Said.EMPTY}, or remove the key.")


@functools.cache
def load_variants() -> dict[str, Spec]:
    """Every variant of config/variants.yaml, resolved. Raises PlanError."""
    path = config_folder() / "variants.yaml"
    return resolve_variants(read_yaml(path), path)


def custom_variant(name: str, shipped: dict[str, Spec], file: Path) -> Spec:
    """The variant that a bare `my_file:my_routing` stands for: the paper's CapsNet with that routing."""
    words = {"routing": name, "title": name, "source": f"{name.split(':')[0]}, outside the suite"}
    return build_spec(changed(shipped[CUSTOM_BASE].model_dump(), words), file, name, own=words)


def load_plan(path: Path) -> tuple[Plan, dict[str, Spec], dict[str, TrainingPart]]:
    """A checked plan, the unreduced spec of every variant its tasks name, and the training words of its own variants.

    Raises PlanError: one sentence naming the file, the key and the nearest valid word.
    """
    plan = _plan_alone(path)
    shipped = load_variants()
    own, trainings = _own_variants(plan, shipped, path)
    known = shipped | resolve_variants(own, path, shipped)
    trainings = {name: part for name in own if (part := _training_of(name, own, trainings)) is not None}
    named: dict[str, Spec] = {}
    for task_name, task in plan.tasks.given().items():
        _check_task(plan, task_name, task, path)
        for variant in task.variants:
            named[variant] = _spec_in(task_name, task, variant, known, shipped, path)
    bases = {str(values.get("base")) for values in own.values()}
    if idle := [name for name in own if name not in named.keys() | bases]:
        raise PlanError(f"{path}: variants.{idle[0]} is in no task's variants, so nothing trains it; name it in one.")
    return plan, named, trainings


def _plan_alone(path: Path) -> Plan:
    """The plan in a file, whose variants are not looked into yet, with a name that no plan beside it has."""
    raw = read_yaml(path)
    if "name" not in raw and not SAFE_NAME.fullmatch(path.stem):
        raise PlanError(
            f"{path}: a plan is named after its file, but {path.stem!r} is no valid name; add one, such as "
            "`name: mine`."
        )
    raw.setdefault("name", path.stem)
    try:
        plan = Plan.model_validate(raw)
    except ValidationError as error:
        raise sentence_of(error, Plan, path) from None
    if plan.name != path.stem and (other := _namesake(plan.name, path)):
        raise PlanError(
            f"{path}: name: {plan.name!r} is also the name of {other.name} next to it, whose results this plan would "
            "replace; choose another, or leave it out, and the plan is named after its file."
        )
    return plan


def _own_variants(
    plan: Plan, shipped: dict[str, Spec], path: Path
) -> tuple[dict[str, dict[str, Any]], dict[str, TrainingPart]]:
    """What a plan's own variants say, without their training; and of those that say one, that."""
    own, trainings = {}, {}
    for name, values in plan.variants.items():
        if name in shipped:
            raise PlanError(f"{path}: variants.{name} has the name of one of the suite's own variants; choose another.")
        base, _, axis = name.partition("+")
        if base in shipped and AXIS_VALUE.fullmatch(axis):  # claims about that row would be judged by this variant
            raise PlanError(
                f"{path}: variants.{name} has the name of a row that a task makes of {base} itself; choose another."
            )
        own[name] = {key: value for key, value in values.items() if key != "training"}
        if "training" in values:
            try:
                trainings[name] = TrainingPart.model_validate(values["training"])
            except ValidationError as error:
                raise sentence_of(error, TrainingPart, path, f"variants.{name}.training") from None
    return own, trainings


def _check_task(plan: Plan, name: str, task: TaskPlan, path: Path) -> None:
    """Raise PlanError where a task names a variant twice, widths of others, or more digits than there are."""
    if len(set(task.variants)) != len(task.variants):
        raise PlanError(f"{path}: tasks.{name}.variants names a variant twice.")
    if foreign := [variant for variant in task.widths if variant not in task.variants]:
        raise PlanError(
            f"{path}: tasks.{name}.widths: {foreign[0]!r} is not among the variants{nearest(foreign[0], task.variants)}"
        )
    check_training_digits(plan, name, task, path)
    check_probe_images(name, task, path)


def _spec_in(
    name: str, task: TaskPlan, variant: str, known: dict[str, Spec], shipped: dict[str, Spec], path: Path
) -> Spec:
    """The spec of a variant that a task names. Raises PlanError where there is none, or it does not fit the task."""
    if ":" in variant and (folder := variant.replace(":", ".")) in task.variants:
        raise PlanError(f"{path}: tasks.{name}.variants: {variant} and {folder} would share the folder {folder}.")
    if variant in known:
        spec = known[variant]
    elif CUSTOM_ROUTING.fullmatch(variant):
        spec = custom_variant(variant, shipped, path)
    else:
        raise PlanError(f"{path}: tasks.{name}.variants: no variant {variant!r}{nearest(variant, known)}")
    if reason := task.unfit(spec):
        raise PlanError(f"{path}: tasks.{name}: variant {variant} {reason}.")
    check_custom(getattr(spec, "routing", ""), path.parent, f"{path}: variant {variant}: {code_named(spec)}")
    return spec


def _training_of(name: str, own: dict[str, Any], said: dict[str, TrainingPart]) -> TrainingPart | None:
    """The training words of a plan's own variant: its base's, and its own instead of them."""
    part, base = said.get(name), own[name].get("base")
    inherited = _training_of(base, own, said) if base in own else None  # resolve_variants saw that no chain is a ring
    return part.over(inherited) if part and inherited else part or inherited


def _namesake(name: str, path: Path) -> Path | None:
    """Another plan in the folder of `path` that has this name: by its own word, or as its file is called."""
    for other in sorted(path.parent.glob("*.y*ml")):
        try:
            text = other.read_text(encoding="utf-8", errors="replace") if other.is_file() and other != path else ""
        except OSError:  # not this user's to read, so it is no plan that runs here
            continue
        said = re.search(r"""^name:\s*['"]?([^\s'"#]+)""", text, re.MULTILINE)
        if re.search(r"^tasks:", text, re.MULTILINE) and (said[1] if said else other.stem) == name:
            return other
    return None
