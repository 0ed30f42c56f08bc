"""A routing of one's own: an input goes where its vote points the same way as the others', however long it is."""

import torch
import torch.nn.functional as F
from torch import Tensor

from capsbench.routing import Routed, length, squash


def cosine(votes: Tensor, iterations: int = 3, *, sharpness: float = 4.0) -> Routed:
    """Cosine routing: the logits are cosines between votes and poses, times a sharpness.

    Source: an example of this suite, nobody's publication.

    votes [B, I, J, D]: what each of I inputs says about each of J outputs. Returns poses [B, J, D], couplings [B, I, J]
    and the classes' scores [B, J]. `iterations` is the plan's; `sharpness` stands under `routing_options`.
    """
    b = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    for _ in range(iterations):
        c = b.softmax(2)  # over the outputs
        v = squash(torch.einsum("bij,bijd->bjd", c, votes))  # [B, J, D]
        b = sharpness * F.cosine_similarity(votes, v.unsqueeze(1), dim=3)  # [B, I, J]
    return Routed(v, c, length(v))
