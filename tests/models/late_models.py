"""Models that a first look takes for right ones; test_outside_late.py copies this file beside its plans."""

import torch
from torch import nn


class Logits(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Linear(784, 10)

    def forward(self, images):
        return self.classes(images.flatten(1))


class StartsAnew(Logits):
    """Scale and shift from the first images that come, as in Glow, but that they came is an attribute."""

    def __init__(self, remembers=False):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(10))
        self.scale = nn.Parameter(torch.ones(10))
        self.remembers = remembers
        self.register_buffer("started", torch.zeros(()))
        self.has_started = False

    def forward(self, images):
        scores = super().forward(images)
        if not (self.started if self.remembers else self.has_started):
            with torch.no_grad():
                self.shift.copy_(scores.mean(0))
                self.scale.copy_(1 / (scores.std(0, correction=0) + 0.1))
            self.has_started = True
            self.started.fill_(1)
        return (scores - self.shift) * self.scale


class MaskOfFirst(Logits):
    def forward(self, images):
        if self.training and not hasattr(self, "mask"):
            self.mask = (torch.rand(images.shape[1:]) > 0.5).float()
        return super().forward(images * getattr(self, "mask", 1.0))


class KeepsGraph(Logits):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(10))

    def forward(self, images):
        scores = super().forward(images)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * scores.mean(0)
        return scores - self.mean


class NotAlone(Logits):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(10, track_running_stats=False)

    def forward(self, images):
        return self.norm(super().forward(images))


class Complex128(Logits):
    def __init__(self):
        super().__init__()
        self.register_buffer("turn", torch.zeros(3, dtype=torch.complex128))


class Long(Logits):
    def forward(self, images):
        raise ValueError("word " * 1000)
