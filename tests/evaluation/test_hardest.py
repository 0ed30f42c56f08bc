"""The pictures that evaluation stores of the hardest test images."""

from __future__ import annotations

import numpy as np
import torch

from capsbench.evaluation.pictures import HARDEST, hardest
from capsbench.evaluation.predict import margins


def test_the_images_furthest_from_their_class_come_first() -> None:
    images = torch.arange(4, dtype=torch.uint8)[:, None, None].expand(4, 28, 28)
    scores = torch.tensor([[0.9, 0.2, 0.1], [0.1, 0.8, 0.3], [0.5, 0.4, 0.45], [0.2, 0.3, 0.4]])
    found = hardest(images, margins(scores, torch.tensor([0, 0, 1, 2])))
    assert found["indices"].tolist() == [1, 2, 3, 0]  # margins -0.7, -0.1, +0.1, +0.7
    assert found["indices"].dtype == np.uint16
    assert found["images"][:, 5, 5].tolist() == [1, 2, 3, 0]


def test_no_more_than_the_promised_number_is_kept() -> None:
    found = hardest(torch.zeros(300, 28, 28, dtype=torch.uint8), torch.rand(300))
    assert HARDEST == 100  # as docs/results-format.md says
    assert found["images"].shape == (HARDEST, 28, 28)
    assert len(set(found["indices"].tolist())) == HARDEST
