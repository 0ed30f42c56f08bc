"""`capsbench variants`: what a plan may name, and what each changes against the paper."""

from __future__ import annotations

import yaml
from rich.console import Console
from rich.table import Table

from capsbench.errors import PlanError, nearest
from capsbench.plan import load_variants
from capsbench.plan.tasks import TASKS
from capsbench.plan.variants import CnnSpec, Spec, TwoDigitSpec

REFERENCE = "capsnet-r3-recon"
HOME = {"cnn-valid": 40, "cnn-pool": 40, "convnet-avg": 40, "convnet-avg-5": 40, "multimnist-cnn": 36}


def differences(spec: Spec, reference: Spec) -> str:
    """The values in which a spec departs from the paper's CapsNet, or what kind of model it is."""
    if isinstance(spec, CnnSpec):
        return "a CNN: " + ", ".join(map(str, spec.channels)) + " channels"
    if isinstance(spec, TwoDigitSpec):
        return "two-digit model, " + (
            f"{spec.routing} routing" if spec.head == "capsules" else f"{spec.pooling} pooling"
        )
    words = {"title", "source"}
    ours, theirs = spec.model_dump(exclude=words), reference.model_dump(exclude=words)
    return ", ".join(f"{key} {value}" for key, value in ours.items() if value != theirs.get(key)) or "nothing"


def parameters(spec: Spec, image_size: int) -> int:
    """Trained numbers of the model at that image size; built without memory for its weights."""
    import torch

    from capsbench.models import build_model, count_parameters

    with torch.device("meta"):
        return count_parameters(build_model(spec, image_size))


def list_variants(console: Console, specs: dict[str, Spec]) -> None:
    """One row a variant."""
    table = Table("variant", "parameters", "at", "against the paper's CapsNet", "source")
    for name, spec in specs.items():
        size = HOME.get(name, 28)
        table.add_row(
            name, f"{parameters(spec, size):,}", f"{size}x{size}", differences(spec, specs[REFERENCE]), spec.source
        )
    console.print(table)


def show_variant(console: Console, name: str) -> None:
    """One variant: its resolved spec and its parameters at every image size of the suite that it takes."""
    specs = load_variants()
    if name not in specs:
        raise PlanError(f"There is no variant {name!r}{nearest(name, specs)}")
    spec = specs[name]
    console.print(f"[bold]{name}[/]: {spec.title}")
    console.print(yaml.safe_dump(spec.model_dump(exclude={"title"}), sort_keys=False, default_flow_style=None).rstrip())
    console.print(f"against {REFERENCE}: {differences(spec, specs[REFERENCE])}")
    for task, kind in TASKS.items():
        variants = kind.model_construct(variants=[name])
        if variants.unfit(spec) is None:
            size = kind.IMAGE[0]
            console.print(f"{parameters(spec, size):,} parameters on {task} ({size}x{size})")
