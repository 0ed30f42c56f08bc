"""The runs of results/paper on MNIST, and what findings.md and mnist.md say of them, for the tests of both."""

from __future__ import annotations

import json

import pages
import pandas as pd

PAPER = pages.RESULTS / "paper"
ROWS = {  # passes of routing; without reconstruction
    "3": "capsnet-r3-recon", "1": "capsnet-r1-recon", "plain": "capsnet-r3", "neither": "capsnet-r1",
}  # fmt: skip
RUNS = PAPER / "runs" / "mnist"
PUBLISHED = {
    "r=3, reconstruction": 0.25,
    "r=1, reconstruction": 0.29,
    "r=3": 0.35,
    "r=1": 0.34,
}  # Table 1, in the order of ROWS
LINES = (pages.REPOSITORY / "docs" / "mnist.md").read_text()
PAGE, FINDINGS = pages.words_of("docs/mnist.md"), pages.words_of(pages.FINDINGS)


def of_every_seed(condition: str, row: str = "3", seeds: int = 5) -> pd.DataFrame:
    """A condition's metrics, a row a seed: of a row of CapsNet, as ROWS has it, or of a variant's name."""
    files = [RUNS / ROWS.get(row, row) / f"seed-{seed}" / condition / "metrics.json" for seed in range(seeds)]
    return pd.DataFrame(
        {name: of["value"] for name, of in json.loads(path.read_text())["metrics"].items()} for path in files
    )


def said(pattern: str, text: str = PAGE) -> list[float]:
    """The numbers that a text has in the place of the groups of `pattern`."""
    return pages.said(pattern, text)
