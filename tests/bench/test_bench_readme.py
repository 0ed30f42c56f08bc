"""The tables of speeds of benchmarks/README.md and of README have the ratios of the stored measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE, README = REPOSITORY / "benchmarks" / "README.md", REPOSITORY / "README.md"
STORED = REPOSITORY / "benchmarks" / "results"
PLAIN = ("plain PyTorch CapsNet", "float32")
FUSED = "capsnet-r3-recon, fused, captured"
TILES = "capsnet-r3-recon, fused, tiles"


def training(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The training rows of a stored measurement, by name and precision."""
    rows = json.loads((STORED / f"{name}.json").read_text())["rows"]
    return {(row["name"], row["precision"]): row for row in rows if row["phase"] == "training"}


def line(first: str, page: Path = PAGE) -> list[str]:
    """The cells behind the first one of a page's only row of a table that begins with it."""
    (found,) = (row for row in page.read_text().splitlines() if row.startswith(f"| {first}"))
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_on_a_gpu() -> None:
    rows = training("gpu-h200")
    undisturbed = training("gpu-h200-with-cnn")[PLAIN]["seconds_per_epoch"]  # rows[PLAIN] waited for its host
    ours, half = rows[FUSED, "float32"], rows[f"{TILES}, captured", "bf16"]
    lower = [undisturbed / row["seconds_per_epoch"] for row in (ours, half)]
    assert line("one NVIDIA H200, batch 128 [1]") == [
        f"{lower[0]:.1f} to {ours['times_plain']:.1f} ({ours['seconds_per_epoch']:.1f} s an epoch)",
        f"{lower[1]:.1f} to {half['times_plain']:.1f} ({half['seconds_per_epoch']:.2f} s)",
    ]
    rows = training("gpu-h200-batch-512")
    ours, half = rows[FUSED, "float32"], rows[f"{TILES}, captured", "bf16"]
    assert line("one NVIDIA H200, batch 512") == [
        f"{ours['times_plain']:.1f} ({ours['seconds_per_epoch']:.2f} s an epoch)",
        f"{half['times_plain']:.1f} ({half['seconds_per_epoch']:.2f} s)",
    ]
    in_tf32 = rows["plain PyTorch CapsNet", "tf32"]["images_per_second"]
    ratios = [row["images_per_second"] / in_tf32 for row in (ours, half)]
    assert line("the same, if the plain one uses TF32") == [f"{ratio:.1f}" for ratio in ratios]


@pytest.mark.parametrize(
    "first", ["one NVIDIA H200, batch 128", "one NVIDIA H200, batch 512", "the same,", "two CPU cores"]
)
def test_readme_has_the_same(first: str) -> None:
    assert line(first, README) == line(first)


def test_on_cpus() -> None:
    names = [path.stem for path in STORED.glob("cpu-*-2-threads.json")]
    ratios = [training(name)["capsnet-r3-recon", "float32"]["times_plain"] for name in names]
    amx = [training(f"cpu-xeon-amx{model}-2-threads")[TILES, "bf16"]["times_plain"] for model in ("", "-model-207")]
    others = [training(name).get(("capsnet-r3-recon", "bf16")) for name in names if "amx" not in name]
    without = [row["times_plain"] for row in others if row]
    assert len(without) == 3
    least, most = min(without), max(without)
    assert len(names) == 6
    assert line("two CPU cores, batch 128") == [
        f"{min(ratios):.1f} to {max(ratios):.1f} on six CPUs",
        f"{amx[0]:.1f} and {amx[1]:.1f} on two of them with AMX, {least:.1f} to {most:.1f} on three without",
    ]


def test_routing_alone() -> None:
    """At the paper's 1,152 input capsules."""
    rows = json.loads((STORED / "gpu-h200.json").read_text())["routing"]
    graph, alone = (
        row
        for captured in (True, False)
        for row in rows
        if (row["name"], row["inputs"], row["captured"]) == ("fused", 1152, captured)
    )
    words = " ".join(PAGE.read_text().split())
    assert (
        f"is {graph['times']:.1f} times as fast on the H200 as with votes in memory, each in a CUDA graph "
        f"({alone['times']:.1f} times outside one, where it holds an {alone['less_memory']:.0f}th of the memory)"
    ) in words
