"""`capsbench variants`: what a plan may name, and what each changes against the paper."""

from __future__ import annotations

from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from capsbench.cli.inputs import with_its_line
from capsbench.errors import PlanError, RoutingError, nearest
from capsbench.plan import House, load_variants
from capsbench.plan.custom import check_custom
from capsbench.plan.load import custom_variant
from capsbench.plan.routings import CUSTOM_ROUTING, ROUTINGS, is_custom
from capsbench.plan.tasks import TASKS
from capsbench.plan.variants import CapsNetSpec, CnnSpec, EmCapsNetSpec, OutsideSpec, ResNetSpec, Spec, TwoDigitSpec

REFERENCE = "capsnet-r3-recon"
TRIAL_WIDTH = 0.125  # of the model in which a routing from outside is tried: as good as full width, and at once


def differences(spec: Spec, reference: Spec) -> str:
    """The values in which a spec departs from the paper's CapsNet, or what kind of model it is instead."""
    if isinstance(spec, CapsNetSpec):
        words = set(spec.WORDS)
        facts = ROUTINGS.get(spec.routing)
        if spec.normaliser == (facts.normaliser if facts else None):
            words.add("normaliser")  # the routing's own, not a choice beside it
        if facts is None and spec.squash is None:
            words.add("squash")  # nobody knows what a routing from outside does to its poses
        ours, theirs = spec.model_dump(exclude=words), reference.model_dump(exclude=words)
        changed = [_said(key, value) for key, value in ours.items() if value != theirs[key]]
        return ", ".join(changed) or "nothing: it is the paper's"
    said = _kind(spec)
    if getattr(spec, "reconstruction", "none") != "none":
        said.append("the paper's decoder")
    said.append(f"{spec.loss} loss" + (f", lambda {spec.down_weight:g}" if spec.loss == "margin" else ""))
    if spec.train_on == "pairs":
        said.append("trained on pairs")
    return ", ".join(said)


def _kind(spec: Spec) -> list[str]:
    """What a model that is not a CapsNet consists of."""
    match spec:
        case CnnSpec():
            kinds = [f"a CNN: {_row(spec.channels)} channels of {_row(spec.kernels)} kernels"]
            kinds += ["no padding"] if spec.padding == "valid" else []
            kinds += ["max-pooling"] if max(spec.pools, default=1) > 1 else []
            kinds += [f"strides {_row(spec.strides)}"] if spec.strides else []
            kinds += ["global average"] if spec.head == "average" else []
            kinds += [f"dense {_row(spec.dense)}"] if spec.dense else []
            return kinds + _vectors(spec)
        case ResNetSpec():
            return [f"a residual CNN: {_row(spec.channels)} channels, {spec.blocks} blocks each, global average"]
        case EmCapsNetSpec():
            return [
                "4x4 matrix capsules with activations",
                f"two convolutional capsule layers, {spec.iterations} passes",
            ]
        case OutsideSpec():
            options = [_said("options", spec.model_options)] if spec.model_options else []
            return [f"a {'model' if spec.capsules else 'baseline'} from outside, {spec.model}", *options]
        case TwoDigitSpec(head="capsules"):
            squash = [] if spec.squash is None else [f"squash {spec.squash}"]  # None: of a routing from outside
            return ["a small trunk", f"capsules, W shared by all, {spec.routing} routing", *squash]
        case TwoDigitSpec():
            dense = f"dense {_row(spec.dense)}" if spec.dense else "linear"
            return ["a small trunk", f"{spec.pooling} pooling", dense, *_vectors(spec)]
    return [f"a {type(spec).__name__}"]


def _vectors(spec: CnnSpec | TwoDigitSpec) -> list[str]:
    """How classes are scored, where it is not by a number each."""
    return [f"scores are lengths of {spec.dim}-D vectors"] if spec.scores == "length" else []


def _row(values: list[int]) -> str:
    return "-".join(map(str, values))


def _said(key: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(_said(k, v) for k, v in value.items())
    return f"no {key}" if value is None else f"{key} {str(value).lower() if isinstance(value, bool) else value}"


def parameters(spec: Spec, image_size: int, folder: Path | None = None) -> int:
    """Trained numbers of the model at that image size; built without memory for its weights, or tried if from outside.

    Raises RoutingError where a model from outside does not do what is expected of one.
    """
    import torch

    from capsbench.models import build_model, count_parameters

    if isinstance(spec, OutsideSpec):  # whose constructor may do anything
        from capsbench.models.trial import build_and_try

        return count_parameters(build_and_try(spec, image_size, folder or Path()))
    with torch.device("meta"):
        return count_parameters(build_model(spec, image_size, folder))


def list_variants(console: Console, folder: Path, house: House | None = None) -> None:
    """One row a variant, of the suite or of a plan in `folder`, where routings from outside are too."""
    specs = load_variants() if house is None else house.specs  # at full width, its cells at the plan's
    reference = load_variants()[REFERENCE]
    table = Table(
        Column("variant", no_wrap=True, min_width=max(map(len, specs))),  # a name is there to be copied
        Column("parameters", no_wrap=True, min_width=10),
        Column("at", no_wrap=True, min_width=5),
        Column("against the paper's CapsNet", overflow="fold"),
        Column("source", overflow="fold"),
    )
    for name, spec in specs.items():
        size = TASKS[spec.home].IMAGE[0]
        count = f"{parameters(spec, size, folder):,}"
        table.add_row(name, count, f"{size}x{size}", Text(differences(spec, reference)), Text(spec.source))
    console.print(table)
    if house is not None and any(cell.width != 1 for cell in house.cells):
        console.print(
            "Parameters are at full width, of which this plan takes a part; name a variant for those it has then."
        )


def find_variant(name: str, folder: Path, planned: dict[str, Spec]) -> Spec:
    """The spec of a shipped variant, of one that a plan names, or of a routing `my_file:my_routing` in `folder`.

    Raises PlanError where there is none, RoutingError where the routing does not do what is expected of one.
    """
    shipped = load_variants()
    specs = shipped | planned
    if name not in specs:
        if not CUSTOM_ROUTING.fullmatch(name):
            hint = "; a routing outside the suite is my_file:my_routing." if is_custom(name) else nearest(name, specs)
            raise PlanError(f"There is no variant {name!r}{hint}")
        check_custom(name, folder, f"variant {name}: routing {name!r}")
        specs[name] = custom_variant(name, shipped, folder)
    spec = specs[name]
    if is_custom(getattr(spec, "routing", "")):
        from capsbench.models.repeatable import build_and_try_twice

        width = 1 if isinstance(spec, OutsideSpec) else TRIAL_WIDTH  # whose width is its own business
        try:
            build_and_try_twice(spec.scaled(width), TASKS[spec.home].IMAGE[0], folder)
        except RoutingError as error:
            raise RoutingError(with_its_line(error, folder)) from error
    return spec


def show_variant(console: Console, name: str, folder: Path, house: House | None = None) -> None:
    """One variant: its resolved spec, its routing's source, and its parameters on every task that it fits.

    `house`: a plan in `folder`, which may have variants of its own; of its rows at another width parameters follow.
    """
    spec = find_variant(name, folder, {} if house is None else house.specs)
    console.print(Text.assemble((name, "bold"), f": {spec.title or name}"))
    dumped = yaml.safe_dump(spec.model_dump(exclude={"title"}), sort_keys=False, default_flow_style=None)
    console.print(dumped.rstrip(), markup=False)
    console.print(f"against {REFERENCE}: {differences(spec, load_variants()[REFERENCE])}")
    routing = "" if getattr(spec, "head", "") == "pool" else getattr(spec, "routing", "")
    if isinstance(spec, OutsideSpec):
        console.print("model: tried on small batches, forward, backward, and again.")
    elif routing:
        from capsbench.routing import describe

        described = describe(routing, folder)
        console.print(f"routing: {described.title} Source: {described.source}.")
        if is_custom(routing):
            console.print("routing: tried on small batches, forward, backward, and again.")
    for task, kind in TASKS.items():
        variants = kind.model_construct(variants=[name])
        elsewhere = isinstance(spec, OutsideSpec) and task != spec.home  # it may be made for one size alone
        if variants.unfit(spec) is None and not elsewhere:
            size = kind.IMAGE[0]
            console.print(f"{parameters(spec, size, folder):,} parameters on {task} ({size}x{size})")
    for cell in () if house is None else house.cells:
        if cell.variant == name and cell.width != 1:
            count = parameters(cell.spec, cell.options.IMAGE[0], folder)
            console.print(f"{count:,} parameters on {cell.task} at this plan's width of {cell.width:g}")
