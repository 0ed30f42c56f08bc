"""What docs/mnist.md says of bf16 follows from the runs of results/precision."""

from __future__ import annotations

import json

import pages
import pytest

PAGE = pages.words_of("docs/mnist.md")
ROW = "capsnet-r3-recon"


def said(pattern: str) -> list[float]:
    """The numbers that the page has in the place of the groups of `pattern`."""
    return pages.said(pattern, PAGE)


def test_what_bf16_has_so_far() -> None:
    """The seeds there are, in bf16 and in float32, and the claim's interval."""
    precision = pages.RESULTS / "precision"
    wrong = {}
    for row in (ROW, f"{ROW}+bf16"):
        files = sorted((precision / "runs" / "mnist" / row).glob("seed-*/test/metrics.json"))
        wrong[row] = [10_000 - json.loads(path.read_text())["metrics"]["correct"]["value"] for path in files]
    full, half = wrong.values()
    found = said(r"seed 0 has (\d+) digits wrong, seed 1 (\d+), where float32 has (\d+) and (\d+)")
    assert found == [*half, *full[:2]]
    claims = {claim["id"]: claim for claim in json.loads((precision / "claims.json").read_text())["claims"]}
    claim = claims["bf16-equals-float32"]
    told = said(r"difference is (-?[\d.]+) points, the claim's interval (-?[\d.]+) to (-?[\d.]+), its margin ([\d.]+);")
    ends = [claim["adjusted_low"], claim["adjusted_high"]]
    assert told == pytest.approx([claim["effect"], *ends, claim["delta"]], abs=0.00501)
    assert claim["verdict"] == "undecided"
    (seconds,) = said(r"Both were trained at once in (\d+) s")
    manifest = json.loads((precision / "runs" / "mnist" / f"{ROW}+bf16" / "seed-0" / "manifest.json").read_text())
    assert seconds == pytest.approx(manifest["seconds"], abs=0.501)
    assert manifest["resolved"]["seeds_at_once"] == 2
