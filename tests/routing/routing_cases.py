"""Inputs for the routing tests: votes, children, and for each algorithm its parameters and options at random."""

from __future__ import annotations

import torch
from torch import Tensor

from capsbench.routing import describe, names

ITERATIVE = ("dynamic", "leaky", "replace", "kmeans", "optimised", "scaled-distance", "em-vector", "inverted-attention")
ONE_PASS = ("uniform", "learned", "self-attention", "self-routing")
ALL = names()
OPTIONS = {
    "dynamic": [{"squash": "half"}, {"squash": "none", "normaliser": "leaky"}, {"normaliser": "sigmoid"}],
    "leaky": [{"squash": "tanh"}],
    "uniform": [{"squash": "exp"}],
    "learned": [{"squash": "ratio", "normaliser": "leaky"}],
    "replace": [{"squash": "tanh", "normaliser": "sigmoid"}],
    "kmeans": [{"squash": "hinton", "normaliser": "leaky"}],
    "optimised": [{"alpha": 0.2}, {"alpha": 3.0, "squash": "ratio"}],
    "scaled-distance": [{"squash": "exp"}],
    "em-vector": [{}],
    "self-attention": [{"average": True}, {"squash": "half"}],
    "inverted-attention": [{}],
    "self-routing": [{}],
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def votes_and_children(
    batch: int = 3, inputs: int = 7, outputs: int = 4, dim: int = 5, child_dim: int = 6, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random votes [B, I, J, D] and children [B, I, d], float64; children of lengths below and above the votes'."""
    draw = generator(seed)
    votes = torch.randn(batch, inputs, outputs, dim, generator=draw, dtype=torch.float64)
    children = torch.randn(batch, inputs, child_dim, generator=draw, dtype=torch.float64)
    return votes, children


def random_parameters(name: str, votes: Tensor, children: Tensor, seed: int = 1) -> dict[str, Tensor]:
    """Every parameter that the routing declares, optional ones too, at random."""
    draw = generator(seed)
    sizes = dict(zip(("inputs", "outputs", "dim"), votes.shape[1:], strict=True)) | {"child_dim": children.shape[-1]}
    return {
        word: torch.randn([sizes[size] for size in parameter.shape], generator=draw, dtype=votes.dtype)
        for word, parameter in describe(name).parameters.items()
    }
