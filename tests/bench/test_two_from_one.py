"""benchmarks/two_from_one.py: what a model says of two digits, from what it says of each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from scripts import script

from capsbench.data.digits import load_digits
from capsbench.evaluation.run import load_model
from capsbench.files import write_json
from capsbench.models import build_model
from capsbench.pipeline import dataset_record, open_house
from capsbench.plan import House
from capsbench.training.probe_two_digit import accuracies, make_pairs
from capsbench.training.run import Setting, train_run

PLAN = """
budget: reduced
seeds: [0]
uci_digits: true
width: 0.25
training: {steps: 300, batch: 32, rate: 3.0e-3, precision: float32}
tasks:
  two_digit:
    variants: [two-digit-sum-linear, two-digit-sum-vectors, two-digit-average-mlp, two-digit-uniform]
    pairs: 300
    last_epochs: 1
"""


@pytest.fixture
def tool() -> ModuleType:
    return script("two_from_one")


@pytest.fixture
def trained(tmp_path: Path, results: Path, no_data: dict[str, str]):
    (plan := tmp_path / "two.yaml").write_text(PLAN)
    house, source = open_house(plan)
    cpu = torch.device("cpu")
    digits = load_digits(source, cpu)

    def train(variant: str) -> Path:
        cell = house.cell("two_digit", variant)
        train_run(Setting(house, cell, digits, dataset_record(source), cpu, 1, print), 0, lambda *_: None)
        return house.run_folder(cell, 0)

    def of_the_suite(variant: str) -> dict[str, float]:
        cell = house.cell("two_digit", variant)
        model = load_model(house, cell, house.run_folder(cell, 0) / "weights.safetensors")
        with torch.inference_mode():
            pairs = make_pairs(cell.options, digits.test)
            return {name: 100 * accuracies(model, of)[0] for name, of in pairs.items()}

    return plan, train, of_the_suite


def ask(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, plan: Path, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["two_from_one.py", *words, "--plan", str(plan)])
    return tool.main()


def given(*rows: dict[int, list[float]], size: int) -> torch.Tensor:
    """e [n, 10, size], 0 where no class is named."""
    e = torch.zeros(len(rows), 10, size)
    for row, classes in enumerate(rows):
        for digit, value in classes.items():
            e[row, digit] = torch.tensor(value)
    return e


def test_numbers_that_speak_against_the_other_digit_lose_the_pair_and_unopposed_win_it(tool) -> None:
    labels = torch.tensor([[0, 1]])
    bias = torch.zeros(1, 10, 1)
    # class 2 is no digit's, and nobody is against it; 0 and 1 are against each other
    a, b = given({0: [3.0], 1: [-5.0]}, size=1), given({0: [-5.0], 1: [3.0]}, size=1)
    whole, added, unopposed, larger = tool.rightly(a + b, a, b, bias, labels, numbers=True)[0].tolist()
    assert (whole, added, unopposed, larger) == (False, False, True, True)
    assert tool.ranks_of(a + b, a, b, labels, numbers=True).tolist() == [pytest.approx([3, -5, 0, -2 / 3])] * 2
    shifted = tool.ranks_of(a + b + 7, a + 7, b + 7, labels, numbers=True)
    assert shifted.tolist() == [pytest.approx([10, 2, 7, -2 / 3])] * 2  # where the zero is changes no rank


def test_vectors_that_point_elsewhere_leave_the_length(tool) -> None:
    labels = torch.tensor([[0, 1]])
    bias = torch.zeros(1, 10, 2)
    a = given({0: [3.0, 0.0], 1: [0.0, 1.0]}, size=2)
    b = given({0: [0.0, 4.0], 1: [3.0, 0.0]}, size=2)
    assert tool.rightly(a + b, a, b, bias, labels, numbers=False).tolist() == [[True] * 4]
    first, second = tool.ranks_of(a + b, a, b, labels, numbers=False).tolist()
    assert first == pytest.approx([3, 1, 0, 5 / 3])
    assert second == pytest.approx([3, 4, 0, 10**0.5 / 3])
    # a length ranks -3 first, a number last
    a, b = given({0: [-3.0]}, size=1), given({1: [3.0]}, size=1)
    assert tool.rightly(a + b, a, b, torch.zeros(1, 10, 1), labels, numbers=False).all()
    assert not tool.rightly(a + b, a, b, torch.zeros(1, 10, 1), labels, numbers=True).any()


def test_the_bias_counts_once(tool) -> None:
    labels, bias = torch.tensor([[0, 1]]), torch.full((1, 10, 1), -4.0)
    a, b = given({0: [7.0]}, size=1) - 4, given({1: [5.0]}, size=1) - 4
    assert tool.rightly(a + b + 4, a, b, bias, labels, numbers=True).all()
    assert tool.ranks_of(a + b + 4, a, b, labels, numbers=True)[:, 3].tolist() == [1, 1]


def test_a_digit_s_places_in_a_pair_give_what_they_give_alone(tool) -> None:
    """What the docstring rests on: one above the other, of 22 rows of places the first 8 see A, the last 8 B."""
    torch.manual_seed(0)
    model = build_model("two-digit-sum-linear", image_size=28)
    a, b = torch.rand(2, 3, 1, 28, 28)
    pair = model.trunk(torch.cat([a, b], 2))  # [3, 128, 22, 8]
    assert pair.shape[2:] == (22, 8)
    torch.testing.assert_close(pair[:, :, :8], model.trunk(a))
    torch.testing.assert_close(pair[:, :, 14:], model.trunk(b))
    between = model.classes(pair[:, :, 8:14].sum((2, 3))) - model.classes.bias
    whole, alone = (tool.given_by(model, x) for x in (torch.cat([a, b], 2), torch.cat([a, b])))
    added = alone[:3] + alone[3:] - model.classes.bias[:, None] + between[:, :, None]
    torch.testing.assert_close(whole, added.detach(), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("variant", ["two-digit-sum-linear", "two-digit-sum-vectors"])
def test_whole_is_the_accuracy_of_the_suite(tool, trained, variant: str, monkeypatch, capsys, tmp_path: Path) -> None:
    plan, train, of_the_suite = trained
    run = train(variant)
    assert ask(tool, monkeypatch, plan, str(run), "--to", str(tmp_path / "rows.json")) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["condition"]: row["whole"] for row in rows} == pytest.approx(of_the_suite(variant))
    # More than guessing (one of 45 pairs) and not all, so that it is the same says something. How many a CPU's rounding
    # decides: 16 of 300 here, 15 with AVX2 or less (MKL_CBWR, ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA), which is 5 %.
    assert all(row["pairs"] == 300 and 100 / 45 < row["whole"] < 100 for row in rows)
    assert [rows[0][way] for way in ("added", "larger")] == [rows[1][way] for way in ("added", "larger")]  # same digits
    assert "unopposed" in capsys.readouterr().out


def asked_of(house: House, variant: str, folder: Path) -> Path:
    """A folder with a manifest as that row's runs have it, as far as is asked before weights are."""
    folder.mkdir()
    cell = house.cell("two_digit", variant)
    run = {"task": "two_digit", "variant": variant, "seed": 0}
    write_json(folder / "manifest.json", {"run": run, "config": cell.config()})
    return folder


def test_what_cannot_be_looked_at_is_a_sentence(tool, trained, monkeypatch, tmp_path: Path) -> None:
    plan, train, _ = trained
    house, _ = open_house(plan)
    for variant in ("two-digit-average-mlp", "two-digit-uniform"):  # a hidden layer; capsules
        refused = asked_of(house, variant, tmp_path / variant)
        with pytest.raises(SystemExit, match=f"{variant}; this looks at scores that are one linear map"):
            ask(tool, monkeypatch, plan, str(refused))
    (squeezed := tmp_path / "squeezed.yaml").write_text(PLAN + "    squeezed: true\n")
    refused = asked_of(open_house(squeezed)[0], "two-digit-sum-linear", tmp_path / "squeezed")
    with pytest.raises(SystemExit, match="this looks at pairs of two_digit that are not squeezed"):
        ask(tool, monkeypatch, squeezed, str(refused))
    run = train("two-digit-sum-linear")
    other = tmp_path / "other.yaml"
    other.write_text(PLAN.replace("batch: 32", "batch: 16"))
    with pytest.raises(SystemExit, match="in another way than this run"):
        ask(tool, monkeypatch, other, str(run))
    (run / "weights.safetensors").write_bytes(b"other")
    with pytest.raises(SystemExit, match=r"weights\.safetensors is missing, or not what the run's"):
        ask(tool, monkeypatch, plan, str(run))
    with pytest.raises(SystemExit, match="nothing is no finished run"):
        ask(tool, monkeypatch, plan, str(tmp_path / "nothing"))
