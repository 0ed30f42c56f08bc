"""A model's scores of many images, a batch at a time, in float32: for measurements that keep little of each image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from capsbench.data.batch import DigitSet
from capsbench.data.mnist import test_images
from capsbench.training.losses import probabilities

BATCH = {"cpu": 250, "cuda": 2000}  # images at once: what fits the cache, and what fills the GPU
IMAGE_BYTES = 20 * 2**20  # of a GPU, of which an affNIST image takes CapsNet half with its votes: the others take less


class Labelled(Protocol):
    """Images with one label each, made or read a batch at a time."""

    labels: Tensor  # [N] int64

    def __len__(self) -> int:
        """The number of images N."""
        ...

    def images(self, start: int, stop: int) -> Tensor:
        """Images start..stop-1: [n, 1, H, W] float32 in [0, 1]."""
        ...


def batches(model: nn.Module, count: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of batches of `count` images, as large as the model's device likes them."""
    device = device_of(model)
    batch = BATCH[device.type]
    if device.type == "cuda":
        batch = _within(torch.cuda.get_device_properties(device).total_memory)
    for start in range(0, count, batch):
        yield start, min(start + batch, count)


def _within(memory: int) -> int:
    """Images at once on a GPU of so many bytes: 2,000 on one of 40 GB, some 750 on one of 16."""
    return max(1, min(BATCH["cuda"], memory // IMAGE_BYTES))


def device_of(model: nn.Module) -> torch.device:
    """Where a model's weights are."""
    return next(model.parameters()).device


def scores_of(model: nn.Module, images: Tensor) -> Tensor:
    """Scores [B, K] in [0, 1] of images [B, 1, H, W]: lengths, or probabilities by the loss of the model's `spec`."""
    return probabilities(model.spec, model(images).scores.float())  # type: ignore[arg-type]


def scored(model: nn.Module, images: Callable[[int, int], Tensor], count: int) -> Iterator[tuple[int, int, Tensor]]:
    """(start, stop, scores [n, K]) of each batch of `images(start, stop)`. The caller switches gradients off."""
    for start, stop in batches(model, count):
        yield start, stop, scores_of(model, images(start, stop))


def single_error(model: nn.Module, digits: DigitSet) -> float:
    """The error in percent on single 28x28 digits, unshifted, the highest score taken."""
    wrong = sum(
        int((scores.argmax(1) != digits.labels[start:stop]).sum())
        for start, stop, scores in scored(model, lambda a, b: test_images(digits, a, b), len(digits.labels))
    )
    return 100 * wrong / len(digits.labels)


def accuracy(model: nn.Module, images: Labelled) -> float:
    """The share of images, in [0, 1], whose highest score is that of their label. Waits for the device once."""
    correct = torch.zeros((), dtype=torch.int64, device=device_of(model))
    for start, stop, scores in scored(model, images.images, len(images)):
        correct += (scores.argmax(1) == images.labels[start:stop]).sum()
    return int(correct) / len(images)
