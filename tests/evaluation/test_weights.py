"""A file of weights that came from anywhere: what it says of itself is checked, and no code that it names is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from capsbench.errors import CapsbenchError, DataError
from capsbench.evaluation.weights import KIND, described, published_run, score
from capsbench.files import write_json
from capsbench.plan.load import load_variants
from capsbench.training.checkpoint import write_tensors

META: dict[str, Any] = {
    "kind": KIND,
    "run": {"task": "mnist", "variant": "cnn", "seed": 0},
    "variant": {},
    "image_size": 28,
    "dataset": {"name": "mnist", "badge": "MNIST"},
    "data_digest": "d",
    "run_digest": "r",
    "git": None,
    "images": 10,
    "correct": 9,
}


@pytest.fixture
def variant() -> dict[str, Any]:
    return load_variants()["capsnet-r3"].scaled(0.0625).model_dump()


def file_of(folder: Path, meta: dict[str, Any]) -> Path:
    path = folder / "given.safetensors"
    write_tensors(path, {"weight": torch.zeros(2)}, meta)
    return path


def test_what_it_says_is_what_was_written(tmp_path: Path, variant: dict[str, Any]) -> None:
    assert described(file_of(tmp_path, {**META, "variant": variant}))["correct"] == 9


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run", None),
        ("run", {"task": "mnist"}),
        ("run", {"task": "affnist", "variant": "cnn", "seed": 0}),
        ("variant", "cnn"),
        ("image_size", 0),
        ("dataset", []),
        ("data_digest", 3),
        ("images", "many"),
        ("correct", -1),
    ],
)
def test_what_is_missing_or_of_another_kind_is_named(tmp_path: Path, key: str, value: object) -> None:
    words = f"is not as `capsbench weights` writes it \\({key}.*: .*\\)."
    with pytest.raises(DataError, match=words):
        described(file_of(tmp_path, {**META, key: value}))
    with pytest.raises(DataError, match=words):
        described(file_of(tmp_path, {name: said for name, said in META.items() if name != key}))


@pytest.mark.parametrize("what", ["routing", "model"])
def test_code_that_it_names_is_not_imported(tmp_path: Path, variant: dict[str, Any], monkeypatch, what: str) -> None:
    (tmp_path / "unasked.py").write_text("raise SystemExit('this was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = file_of(tmp_path, {**META, "variant": {**variant, what: "unasked:thing"}})
    for read in (described, lambda path: score(path, None, torch.device("cpu"))):
        with pytest.raises(DataError, match=f"names the {what} unasked:thing, from outside the suite"):
            read(path)
    assert "unasked" not in sys.modules


@pytest.mark.parametrize("what", ["routing", "model"])
def test_a_run_whose_code_is_from_outside_has_no_such_file(tmp_path: Path, variant: dict[str, Any], what: str) -> None:
    config = {"variant": {**variant, what: "mine:thing"}, "task": {"image": [28, 28]}}
    manifest = {"run": META["run"], "status": "done", "config": config, "dataset": META["dataset"], "weights": "w"}
    write_json(tmp_path / "manifest.json", {**manifest, "digests": {"data": "d"}})
    with pytest.raises(CapsbenchError, match=f"has the {what} mine:thing, code that no file of weights brings along"):
        published_run(tmp_path)
