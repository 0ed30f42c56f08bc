"""Claims that nobody judged, and the page of results with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capsbench.report.claims_file import ClaimsFile
from capsbench.report.collect import collect
from capsbench.report.extras import extra_tables
from capsbench.report.figures import DrawnFigure
from capsbench.report.html import write_html

VERDICTS = {  # id -> verdict and the variants of its cells
    "mnist-r3-recon-value": ("not run", []),
    "mnist-capsnet-beats-fair-cnn": ("reproduced", ["capsnet-r3-recon", "cnn"]),
    "mnist-routing-helps": ("undecided", ["capsnet-r3-recon", "capsnet-r1-recon"]),
    "mnist-routing-alone": ("not reproduced", ["capsnet-r3", "capsnet-r1"]),
    "mnist-reconstruction-helps": ("undecided", ["capsnet-r3-recon", "capsnet-r3"]),
    "cifar10-value": ("not run", []),
}


def claim(name: str, verdict: str, variants: list[str], **changes: Any) -> dict[str, Any]:
    """One claim as docs/results-format.md has it."""
    run = verdict != "not run"
    kind = "value" if name.endswith("value") else "no_difference" if name.endswith("alone") else "direction"
    roles = zip(("claimed", "baseline"), variants, strict=False)
    return {
        "id": name, "sentence": f"Sentence of {name}.", "source": "Table 1", "kind": kind, "family": "mnist",
        "verdict": verdict, "why": f"because of {name}", "metric": "error", "unit": "%", "condition": "test",
        "reason": None if run else "not tested here",
        "dataset": {"name": "mnist", "badge": "MNIST"}, "budget": "reduced", "effect": -0.2 if run else None,
        "shown": {"ours": "-0.2 (-0.3 to -0.1) %" if run else "–", "claimed": "< 0"},
        "ci_low": -0.3 if run else None, "ci_high": -0.1 if run else None, "p": 0.01 if run else None,
        "p_holm": 0.02 if run else None, "n": 3 if run else None, "seeds_needed": 9 if verdict == "undecided" else None,
        "paper": 0.25 if kind == "value" else None, "delta": 0.05 if kind == "value" else None,
        "cells": [
            {"role": role, "task": "mnist", "variant": v, "title": v, "metric": "error", "n": 3, "runs": []}
            for role, v in roles
        ],
        "tables": ["mnist"], "figures": ["mnist_error"],
    } | changes  # fmt: skip


def claims_file(claims: list[dict[str, Any]] | None = None, **changes: Any) -> ClaimsFile:
    """What claims.json would say with the six claims of VERDICTS, or others."""
    claims = [claim(name, *found) for name, found in VERDICTS.items()] if claims is None else claims
    said = {"schema": 1, "edited": None, "families": {"mnist": "Table 1"}, "claims": claims}
    return ClaimsFile.model_validate(said | changes)


def write_page(folder: Path, page: Path, claims: ClaimsFile | None = None) -> Path:
    """report.html of results whose figures are drawn already, with those claims, or the six."""
    pictures = sorted((folder / "figures").glob("*.png"))
    figures = [DrawnFigure(p.stem, p.stem, "caption", p, p.with_suffix(".pdf")) for p in pictures]
    results = collect(folder)
    write_html(page, results, figures, {}, extra_tables(results), claims or claims_file())
    return page
