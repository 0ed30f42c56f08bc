"""benchmarks/same_curve.py: a stored training curve beside one of an independent implementation."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch
from scripts import script

from capsbench.data.digits import load_digits
from capsbench.pipeline import dataset_record, open_house
from capsbench.training.run import Setting, train_run

PLAN = """
budget: reduced
seeds: [0, 1]
uci_digits: true
training: {steps: 3, batch: 4, precision: float32}
tasks: {mnist: {variants: [capsnet-r1-recon, capsnet-r3-recon, capsnet-r3], test_images: 10}}
"""


@pytest.fixture
def tool() -> ModuleType:
    return script("same_curve")


@pytest.fixture
def trained(tmp_path: Path, results: Path, no_data: dict[str, str]):
    """Trains a seed of a row; returns its folder."""
    (plan := tmp_path / "curve.yaml").write_text(PLAN)
    house, source = open_house(plan)
    cpu = torch.device("cpu")
    digits = load_digits(source, cpu)

    def train(variant: str, seed: int) -> Path:
        cell = house.cell("mnist", variant)
        train_run(Setting(house, cell, digits, dataset_record(source), cpu, 1, print), seed, lambda *_: None)
        return house.run_folder(cell, seed)

    return plan, train


def ask(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, run: Path, plan: Path, *words: str) -> int:
    command = ["same_curve.py", str(run), "--plan", str(plan), "--rows", "3", "--threads", "1", *words]
    monkeypatch.setattr(sys, "argv", command)
    return tool.main()


@pytest.mark.parametrize("variant", ["capsnet-r1-recon", "capsnet-r3-recon"])
def test_our_capsnet_trains_as_the_plain_one_does(tool, trained, variant: str, monkeypatch, capsys) -> None:
    plan, train = trained
    first, second = (train(variant, seed) for seed in (0, 1))
    assert ask(tool, monkeypatch, first, plan, "--within", "1e-4") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] in (["1"], ["2"], ["3"])]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert all(row[3] in ("+0.00%", "-0.00%") and row[4] not in ("+0.00%", "-0.00%") for row in rows)  # the other seed

    history = pd.read_csv(second / "history.csv")
    history.loc[2, "loss"] *= 1.001
    history.to_csv(second / "history.csv", index=False)
    assert ask(tool, monkeypatch, second, plan, "--within", "1e-4") == 1


def test_what_cannot_be_compared_is_a_sentence(tool, trained, monkeypatch, tmp_path: Path) -> None:
    plan, train = trained
    with pytest.raises(SystemExit, match="capsnet-r3; this compares mnist's capsnet-r1-recon and"):
        ask(tool, monkeypatch, train("capsnet-r3", 0), plan)
    other = tmp_path / "other.yaml"
    other.write_text(PLAN.replace("batch: 4", "batch: 8"))
    with pytest.raises(SystemExit, match="in another way than this run"):
        ask(tool, monkeypatch, train("capsnet-r3-recon", 0), other)
    with pytest.raises(SystemExit, match="nothing is no finished run"):
        ask(tool, monkeypatch, tmp_path / "nothing", plan)
