"""The published CapsNet on MNIST's test digits, in plain PyTorch: what a file of weights means without this package.

    python examples/trained_weights/score.py results/paper/weights/mnist-capsnet-r3-recon-seed-0.safetensors MNIST

The equations are those of "Dynamic Routing Between Capsules" (arXiv 1710.09829), the shapes beside them for images
[B, 1, 28, 28]. The folder MNIST has t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, as they are or as .gz,
at any depth.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor


def capsnet(weights: dict[str, Tensor], images: Tensor, iterations: int = 3) -> Tensor:
    """Images [B, 1, 28, 28] in [0, 1] to digit capsules v [B, 10, 16]; the longest one's class is the answer."""
    x = F.relu(F.conv2d(images, weights["conv1.weight"], weights["conv1.bias"]))  # [B, 256, 20, 20]
    x = F.conv2d(x, weights["primary.weight"], weights["primary.bias"], stride=2)  # [B, 256, 6, 6]
    u = squash(x.view(len(x), 32, 8, 36).transpose(2, 3).reshape(len(x), 1152, 8))  # 32 types at 36 places
    votes = torch.einsum("bid,ijde->bije", u, weights["digit_caps.weight"])  # [B, 1152, 10, 16], equation 2
    logits = torch.zeros(votes.shape[:3])  # [B, 1152, 10]
    for _ in range(iterations):  # procedure 1
        couplings = logits.softmax(2)  # over the ten digit capsules
        v = squash(torch.einsum("bij,bije->bje", couplings, votes))  # [B, 10, 16]
        logits = logits + torch.einsum("bije,bje->bij", votes, v)
    return v


def squash(s: Tensor) -> Tensor:
    """Equation 1: a vector shortened to a length below 1."""
    length = s.norm(dim=-1, keepdim=True)
    return length / (1 + length**2) * s


def read(folder: Path, name: str, header: int) -> np.ndarray:
    """The bytes of one of MNIST's files after its header: [n] uint8."""
    for path in sorted(folder.rglob(f"{name}*")):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return np.frombuffer(content, np.uint8)[header:].copy()
    sys.exit(f"There is no {name} in {folder}; name the folder that has MNIST's test digits.")


def main() -> None:
    """Score the weights that the first argument names on the digits in the second."""
    if len(sys.argv) != 3:
        sys.exit(
            "Name a file of weights of capsnet-r3-recon and the folder that has MNIST; the file's head has an example."
        )
    weights = {name: tensor.float() for name, tensor in load_file(sys.argv[1]).items()}
    images = (
        torch.from_numpy(read(Path(sys.argv[2]), "t10k-images", 16)).view(-1, 1, 28, 28) / 255
    )  # [10000, 1, 28, 28]
    labels = torch.from_numpy(read(Path(sys.argv[2]), "t10k-labels", 8))  # [10000]
    wrong = 0
    with torch.inference_mode():
        for batch, right in zip(images.split(100), labels.split(100), strict=True):
            wrong += int((capsnet(weights, batch).norm(dim=2).argmax(1) != right).sum())
    print(f"{wrong} of {len(labels):,} wrong: {100 * wrong / len(labels):.2f} %")


if __name__ == "__main__":
    main()
