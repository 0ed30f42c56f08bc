"""examples/custom_model goes through training, evaluation and report beside the paper's CapsNet."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from places import REPOSITORY, Place

from capsbench.models import build_model, count_parameters
from capsbench.plan.load import load_plan

EXAMPLE = REPOSITORY / "examples" / "custom_model"
MINE = ("efficient-capsnet", "efficient-capsnet-uniform")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place with the example's model and its plan, a few steps long."""
    place = Place(tmp_path, REPOSITORY)
    shutil.copy(EXAMPLE / "efficient_capsnet.py", place.folder)
    plan = yaml.safe_load((EXAMPLE / "custom-model.yaml").read_text())
    plan["width"] = 0.0625
    plan["training"] |= {"steps": 6, "batch": 8}
    plan["seeds"] = [0]
    plan["tasks"]["mnist"] |= {"test_images": 60, "routing_images": 20, "attack_images": 3, "bf16": [MINE[0]]}
    plan["tasks"]["affnist"] = {
        **{"variants": ["efficient-capsnet"], "held_out": 50, "probe_images": 40, "probe_every": 3},
        **{"test_images": 20, "transforms": 2, "factor_images": 10},
    }
    plan["tasks"]["multimnist"] = {
        **{"variants": ["efficient-capsnet"], "train_pairs": 200, "test_pairs": 30, "segmentation_pairs": 10},
    }
    plan["tasks"]["two_digit"] = {"variants": ["efficient-capsnet"], "pairs": 20}
    plan["cost"] = {"batch": 4, "repetitions": 1}
    (place.folder / "custom-model.yaml").write_text(yaml.safe_dump(plan))
    return place


def test_it_has_as_many_parameters_as_published() -> None:
    spec = load_plan(EXAMPLE / "custom-model.yaml")[1]["efficient-capsnet"]
    model = build_model(spec, 28, EXAMPLE)
    assert count_parameters(model.net) == 161_824
    assert count_parameters(build_model(spec.scaled(0.25), 28, EXAMPLE).net) < 161_824 / 5


def test_without_attention_couplings_are_uniform() -> None:
    specs = load_plan(EXAMPLE / "custom-model.yaml")[1]
    images = torch.rand(2, 1, 28, 28)
    torch.manual_seed(0)
    net = build_model(specs[MINE[1]], 28, EXAMPLE).eval().net
    torch.manual_seed(0)
    attending = build_model(specs[MINE[0]], 28, EXAMPLE).eval().net
    shown: list[torch.Tensor] = []
    net.primary.register_forward_hook(lambda _, __, out: shown.append(out))
    lengths, poses = net(images)
    primary = shown[0].flatten(1).unflatten(1, (-1, 8))
    n = primary.norm(dim=2, keepdim=True)
    s = 0.1 * torch.einsum("bid,ijde->bje", (1 - torch.exp(-n)) * primary / n, net.weight)
    n = s.norm(dim=2, keepdim=True)
    torch.testing.assert_close(poses, (1 - torch.exp(-n)) * s / n)
    torch.testing.assert_close(lengths, poses.norm(dim=2))
    assert not torch.allclose(attending(images)[1], poses)


def test_it_is_trained_evaluated_and_reported_on_every_task(place) -> None:
    for command in (["train", "--evaluate"], ["cost"], ["report"]):
        said = place.capsbench(*command, "custom-model.yaml")
        assert said.code == 0, said.text
    results = place.root / "custom-model-digits"
    rows = {name: list(csv.DictReader((results / "tables" / f"{name}.csv").open())) for name in ("mnist", "routing")}
    errors = {row["variant"]: row for row in rows["mnist"] if row["metric"] == "error"}
    assert list(errors) == ["capsnet-r3-recon", MINE[0], f"{MINE[0]}+bf16", MINE[1]]
    assert all(row["n"] == "1" for row in errors.values())
    assert {row["variant"] for row in rows["routing"]} == {"capsnet-r3-recon"}
    for task in ("affnist", "multimnist", "two_digit"):
        table = list(csv.DictReader((results / "tables" / f"{task}.csv").open()))
        assert any(row["variant"] == "efficient-capsnet" and row["n"] == "1" for row in table), task
    assert "Efficient-CapsNet without attention" in (results / "tables" / "mnist.md").read_text()
    assert (results / "plan" / "efficient_capsnet.py").read_text() == (EXAMPLE / "efficient_capsnet.py").read_text()
    run = results / "runs" / "mnist" / "efficient-capsnet" / "seed-0"
    for file in ("test/perturbations.npz", "test/reconstructions.npz", "attacked/metrics.json"):
        assert (run / file).is_file()
    assert "routing" not in {path.name for path in run.iterdir()}

    said = place.capsbench("train", "custom-model.yaml")
    assert said.text.count("done already") == 7
    verified = place.capsbench("verify", results, "--run", "mnist/efficient-capsnet/0")
    assert verified.code == 0, verified.text
