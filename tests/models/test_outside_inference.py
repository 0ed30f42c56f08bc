"""What a model or routing keeps of a call in inference mode and cannot be trained with is told before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsbench.errors import RoutingError
from capsbench.models.build import as_spec
from capsbench.models.repeatable import build_and_try_twice

FILE = """
import torch
from torch import nn
from capsbench.routing import Routed, length, squash

class Model(nn.Module):
    def __init__(self, late=True):
        super().__init__()
        self.classes = nn.Linear(784, 10)
        self.register_buffer("scale", None if late else torch.ones(10), persistent=False)

    def forward(self, images):
        if self.scale is None:
            self.scale = torch.ones(10)
        return self.classes(images.flatten(1)) * self.scale

class Routing(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = None

    def forward(self, votes):
        if self.scale is None:
            self.scale = votes.new_ones(votes.shape[3])
        v = squash((votes * self.scale).mean(1))
        return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))
"""


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"model": "keeps:Model", "loss": "cross-entropy"}, 15),
        ({"base": "capsnet-r3", "routing": "keeps:Routing", "channels": 16, "primary_types": 2}, 25),
    ],
)
def test_it_is_refused(tmp_path: Path, values: dict[str, object], line: int) -> None:
    (tmp_path / "keeps.py").write_text(FILE)
    with pytest.raises(RoutingError) as refused:
        build_and_try_twice(as_spec(values), 28, tmp_path)
    assert f"trained after it was evaluated, keeps.py, line {line}: it raised RuntimeError: Inference" in str(
        refused.value
    )


def test_a_buffer_of_the_constructor_s_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text(FILE)
    spec = as_spec({"model": "keeps:Model", "loss": "cross-entropy", "model_options": {"late": False}})
    build_and_try_twice(spec, 28, tmp_path)
