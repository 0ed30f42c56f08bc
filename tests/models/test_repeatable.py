"""A routing from outside whose figures would mean nothing is refused before it trains, in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.models import build_model
from capsbench.models.repeatable import refuse_other_settings, torch_settings, try_twice

FILE = """
import torch
from torch import nn
from capsbench.routing import Routed, length, squash

CALLS = []

def good(votes):
    v = squash(votes.mean(1))
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))

def noisy(votes):
    return good(votes + torch.randn_like(votes) * votes.std())

def counting(votes):
    CALLS.append(1)
    return good(votes * len(CALLS))

def across(votes):
    return good(votes - votes.mean(0))

def in_place(votes):
    votes *= 2
    return good(votes)

class Dropping(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, votes):
        return good(nn.functional.dropout(votes, 0.5, self.training))

class Normed(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, votes):
        return good(self.norm(votes.flatten(0, 1)).view_as(votes))

def setting(votes):
    torch.set_float32_matmul_precision("medium")
    return good(votes)
"""


def model_of(folder: Path, name: str) -> torch.nn.Module:
    (folder / "repeated.py").write_text(FILE)
    variant = {"base": "capsnet-r3", "routing": f"repeated:{name}", "channels": 16, "primary_types": 2}
    return build_model(variant, 28, folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "noisy",
            "shown the same images again, in evaluation, it gives other poses; randomness, or state that outlives",
        ),
        ("counting", "shown the same images again, in evaluation, it gives other poses"),
        ("across", "in evaluation an image's poses depend on the other images of its batch"),
        ("in_place", "it changes its votes in place, which others read after it; change a copy."),
    ],
)
def test_figures_that_would_mean_nothing(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(RoutingError) as error:
        try_twice(model_of(tmp_path, name), 28)
    assert str(error.value).startswith(f"routing 'repeated:{name}': {words}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["good", "Dropping", "Normed"])
def test_what_is_random_or_looks_across_a_batch_in_training_alone_is_no_fault(tmp_path: Path, name: str) -> None:
    model = model_of(tmp_path, name)
    try_twice(model, 28)
    assert model.training


def test_torch_s_settings_are_nobody_s_to_change(tmp_path: Path) -> None:
    before = torch_settings()
    refuse_other_settings(before, "repeated:good")
    try:
        model_of(tmp_path, "setting")(torch.rand(1, 1, 28, 28))
        with pytest.raises(RoutingError, match="it changes the precision of float32 products"):
            refuse_other_settings(before, "repeated:setting")
    finally:
        torch.set_float32_matmul_precision(before["the precision of float32 products"])
    refuse_other_settings(before, "repeated:good")
