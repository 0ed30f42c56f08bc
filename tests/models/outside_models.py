"""Models as users may write them, right and wrong; test_outside.py copies this file beside its plans."""

import random

import numpy
import torch
from torch import nn

CALLS = []


class Good(nn.Module):
    def __init__(self, image_size, width=1.0, bias=True):
        super().__init__()
        self.pixels = image_size**2
        self.vectors = nn.Linear(self.pixels, 10 * max(1, round(16 * width)), bias=bias)

    def forward(self, images):
        poses = self.vectors(images.flatten(1)).unflatten(1, (10, -1))
        length = poses.square().sum(2).add(1e-9).sqrt()
        return length / (1 + length), poses


class Logits(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Linear(784, 10)

    def forward(self, images):
        return self.classes(images.flatten(1))


def made(classes=10):
    net = Logits()
    net.classes = nn.Linear(784, classes)
    return net


def a_number():
    return 3.0


class AnySize(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Conv2d(1, 10, 5)

    def forward(self, images):
        return self.classes(images).mean((2, 3))


class Anything(Logits):
    def __init__(self, **options):
        super().__init__()


class Needy(Logits):
    def __init__(self, strength):
        super().__init__()


class Raising(Logits):
    def __init__(self):
        super().__init__()
        self.weight = {}["weight"]


class Crash(Logits):
    def forward(self, images):
        return super().forward(images).reshape(3, 7)


class Text(Logits):
    def forward(self, images):
        return "scores"


class Transposed(Logits):
    def forward(self, images):
        return super().forward(images).t()


class Doubles(Logits):
    def forward(self, images):
        return super().forward(images).double()


class Nan(Logits):
    def forward(self, images):
        return super().forward(images) / 0


class NanOnBlack(Good):
    def forward(self, images):
        x = images.flatten(1)
        return Good.forward(self, x / x.norm(dim=1, keepdim=True))


class Steep(Good):
    def forward(self, images):
        scores, poses = Good.forward(self, images)
        return scores + (poses * 0).sum(2).sqrt(), poses


class Idle(Logits):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)


class Frozen(Idle):
    def __init__(self):
        super().__init__()
        self.head.requires_grad_(False)


class AllFrozen(Logits):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)


class Detached(Logits):
    def forward(self, images):
        return super().forward(images).detach()


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.LazyLinear(10)

    def forward(self, images):
        return self.classes(images.flatten(1))


class InPlace(Logits):
    def forward(self, images):
        return super().forward(images.mul_(2))


class Dropping(Logits):
    def forward(self, images):
        return super().forward(nn.functional.dropout(images, 0.5, self.training))


class Normed(Logits):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, images):
        return super().forward(self.norm(images))


class Noisy(Logits):
    def forward(self, images):
        return super().forward(images + torch.randn_like(images))


class Python(Logits):
    def forward(self, images):
        return super().forward(images * (random.random() if self.training else 1))


class Counting(Logits):
    def forward(self, images):
        CALLS.append(1)
        return super().forward(images * (1 if self.training else len(CALLS)))


class Plain(Logits):
    def __init__(self):
        super().__init__()
        self.turned = torch.randn(784, 784)

    def forward(self, images):
        return self.classes(images.flatten(1) @ self.turned)


class Mean(Logits):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(784), persistent=False)

    def forward(self, images):
        x = images.flatten(1)
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        return self.classes(x - (x.mean(0) if self.training else self.mean))


class Steps(Logits):
    steps = 0

    def forward(self, images):
        self.steps += self.training
        return super().forward(images) * (1 + 1e-3 * self.steps * self.training)


class InAList(Logits):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(784, 784)]

    def forward(self, images):
        return self.classes(self.layers[0](images.flatten(1)))


class Generator(Logits):
    def __init__(self):
        super().__init__()
        self.draw = torch.Generator().manual_seed(0)

    def forward(self, images):
        noise = torch.rand(images.shape, generator=self.draw) if self.training else 0
        return super().forward(images + noise)


class Later(Logits):
    def forward(self, images):
        if not hasattr(self, "extra"):
            self.extra = nn.Parameter(torch.ones(10))
        return super().forward(images) * self.extra


class Numpy(Logits):
    def __init__(self):
        super().__init__()
        self.classes.weight.data = torch.tensor(numpy.random.default_rng().normal(size=(10, 784)), dtype=torch.float32)


class OwnSeed(Logits):
    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=draw)


class Seeded(Logits):
    def __init__(self):
        torch.manual_seed(42)
        super().__init__()


class Tied(Logits):
    def __init__(self):
        super().__init__()
        self.other = self.classes


class Extra(Logits):
    def get_extra_state(self):
        return {"a": 1}

    def set_extra_state(self, state):
        pass


class Complex(Logits):
    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.ones(10, dtype=torch.complex64))


class NanLater(Logits):
    def forward(self, images):
        return super().forward(images) * (1 if self.training else float("nan"))


class DoublePoses(Good):
    def forward(self, images):
        scores, poses = Good.forward(self, images)
        return scores, poses.double()


class Pictures(Logits):
    def forward(self, images):
        return super().forward(images), images[:, 0]


class Three(Logits):
    def forward(self, images):
        scores = super().forward(images)
        return scores, scores.unsqueeze(2), scores


class Words(Logits):
    def forward(self, images):
        return super().forward(images), "poses"


class PosesAlone(Logits):
    def __init__(self):
        super().__init__()
        self.vectors = nn.Linear(784, 160)

    def forward(self, images):
        return super().forward(images), self.vectors(images.flatten(1)).unflatten(1, (10, 16))


class Sigmoids(Logits):
    def forward(self, images):
        return super().forward(images).sigmoid()


class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(784, 784)
        self.classes = nn.Linear(784, 10)
        self.norm = nn.BatchNorm1d(784)

    def forward(self, images):
        import math  # as some write it

        return self.classes(self.norm(self.twice(self.twice(images.flatten(1))))) / math.sqrt(2)


class Across(Logits):
    def forward(self, images):
        return super().forward(images - images.mean(0))


class Setting(Logits):
    def __init__(self):
        super().__init__()
        torch.set_float32_matmul_precision("medium")


class Strided(nn.Module):
    """A skip as of a residual block, which halves height and width."""

    def __init__(self, channels, **options):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.skip = nn.Conv2d(channels, channels, **{"kernel_size": 1, "stride": 2, **options})
        self.classes = nn.Linear(channels, 10)

    def forward(self, images):
        return self.classes(self.skip(self.first(images).relu()).mean((2, 3)))
