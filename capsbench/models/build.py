"""From a variant's name or spec to a model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from capsbench.errors import PlanError, nearest
from capsbench.plan.load import build_spec, config_folder, load_variants, resolve_variants
from capsbench.plan.variants import MODELS, Spec


def as_spec(variant: str | Mapping[str, Any] | Spec) -> Spec:
    """The checked spec of a variant: a name from config/variants.yaml, a mapping (with `base` if wished), or a spec.

    Raises:
        PlanError: the name, a key or a value does not exist; the sentence names the nearest valid word.
    """
    if isinstance(variant, Spec):
        return variant
    shipped = load_variants()
    if isinstance(variant, str):
        if variant not in shipped:
            raise PlanError(f"There is no variant {variant!r}{nearest(variant, shipped)}")
        return shipped[variant]
    file = config_folder() / "variants.yaml"
    if "base" in variant:
        return resolve_variants({"given": dict(variant)}, file, shipped)["given"]
    return build_spec(dict(variant), file, "given")


def build_model(variant: str | Mapping[str, Any] | Spec, image_size: int = 28, folder: Path | None = None) -> nn.Module:
    """An untrained model, its weights drawn from torch's generator.

    Args:
        variant: a name from config/variants.yaml, a mapping of a spec's keys, or a spec.
        image_size: height and width of the images in pixels.
        folder: where a routing named `my_file:my_routing` lies.

    Raises:
        PlanError: no such variant or key, or the model cannot take images of that size.
    """
    spec = as_spec(variant)
    if image_size < spec.smallest_image():
        raise PlanError(
            f"Variant {variant if isinstance(variant, str) else spec.title or 'given'} needs images of at least "
            f"{spec.smallest_image()}x{spec.smallest_image()} pixels, not {image_size}x{image_size}."
        )
    module, name = MODELS[spec.model].split(":")  # type: ignore[attr-defined]
    return getattr(importlib.import_module(module), name)(spec, image_size=image_size, folder=folder)


def count_parameters(model: nn.Module) -> int:
    """Trained numbers in a model. Couplings c_ij are activations and do not count."""
    return sum(parameter.numel() for parameter in model.parameters())
