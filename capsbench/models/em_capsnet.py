"""Matrix capsules: "Matrix capsules with EM routing" (Hinton, Sabour and Frosst 2018), figure 1, small configuration.

Three things differ from the paper. A capsule of a convolutional layer normalises its R_ij over the types of one place
at a time, not over all places that see it (as published ports do). The cost of EM is scaled by 100 / children of a
parent (`capsbench.routing.em`), without which the activations of parents with many children are 0 or 1 from the start.
Each type of parent learns a beta_a of its own, where the paper has one for all capsules.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsbench.models.output import Output
from capsbench.plan.tasks import CLASSES
from capsbench.plan.variants import EmCapsNetSpec
from capsbench.routing import Routed, joined
from capsbench.routing.em_matrix import em_matrix
from capsbench.routing.squash import at_least_float32

# beta_a is learned in units of 1000, about 1/lambda: log odds are lambda (beta_a - cost) with a lambda of 0.0005 to
# 0.0014 in three passes, so that a step of Adam on beta_a itself would move no activation.
BETA_A_UNIT = 1000.0
CHUNK_BYTES = {"cpu": 3 * 2**20}  # votes routed at a time on a CPU: about what its cache holds
CHUNK_BYTES_ELSEWHERE = 2**30


class MatrixCapsules(nn.Module):
    """EM routing from I lower capsules of one parent's receptive field to J parent types, 4x4 poses and activations.

    W [I, J, 4, 4] and the two costs beta_a, beta_u [J] are shared by all places. How they start the paper does not say:
    W at the identity and noise of 0.03, beta_u at 0, beta_a where told; these learn, others that we tried hardly do.
    """

    def __init__(self, inputs: int, outputs: int, iterations: int, beta_a: float = 0.0) -> None:
        super().__init__()
        self.iterations = iterations
        self.weight = nn.Parameter(torch.eye(4) + 0.03 * torch.randn(inputs, outputs, 4, 4))
        self.beta_a = nn.Parameter(torch.full((outputs,), beta_a / BETA_A_UNIT))
        self.beta_u = nn.Parameter(torch.zeros(outputs))

    def votes(self, poses: Tensor) -> Tensor:
        """V_ij = M_i W_ij (section 2): poses [N, I, 4, 4] to votes [N, I, J, 16]."""
        return torch.einsum("nipq,ijqr->nijpr", poses, self.weight).flatten(3)

    def forward(self, poses: Tensor, activations: Tensor, iterations: int | None = None, trace: bool = False) -> Routed:
        """Poses [N, I, 4, 4] and activations [N, I] to poses [N, J, 16] and activations [N, J] of the parents."""
        return self.route(self.votes(poses), activations, iterations, trace)

    def route(self, votes: Tensor, activations: Tensor, iterations: int | None = None, trace: bool = False) -> Routed:
        """Votes [N, I, J, 16], routed a part of the N at a time: parents do not see each other."""
        limit = CHUNK_BYTES.get(votes.device.type, CHUNK_BYTES_ELSEWHERE)
        rows = max(1, limit // (votes[0].numel() * votes.element_size()))
        parts = zip(votes.split(rows), activations.split(rows), strict=True)
        r = self.iterations if iterations is None else iterations
        beta_a = BETA_A_UNIT * self.beta_a
        return joined([em_matrix(v, a, beta_a, self.beta_u, r, trace=trace) for v, a in parts])


class ConvCapsules(nn.Module):
    """Matrix capsules whose parents see k x k places of the layer below (section 4: k = 3)."""

    def __init__(self, types: int, outputs: int, kernel: int, stride: int, iterations: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.capsules = MatrixCapsules(kernel * kernel * types, outputs, iterations)

    def forward(self, poses: Tensor, activations: Tensor, iterations: int | None = None) -> tuple[Tensor, Tensor]:
        """Poses [B, C, 16, H, W] and activations [B, C, H, W] to [B, J, 16, h, w] and [B, J, h, w]."""
        k, s = self.kernel, self.stride
        fields = poses.unfold(3, k, s).unfold(4, k, s)  # [B, C, 16, h, w, k, k]
        batch, _, _, h, w, _, _ = fields.shape
        fields = fields.permute(0, 3, 4, 5, 6, 1, 2).reshape(batch * h * w, -1, 4, 4)  # [B*h*w, k*k*C, 4, 4]
        a = activations.unfold(2, k, s).unfold(3, k, s)  # [B, C, h, w, k, k]
        a = a.permute(0, 2, 3, 4, 5, 1).reshape(batch * h * w, -1)  # [B*h*w, k*k*C]
        routed = self.capsules(fields, a, iterations)
        above = routed.poses.unflatten(0, (batch, h, w)).permute(0, 3, 4, 1, 2)  # [B, J, 16, h, w]
        return above, routed.scores.unflatten(0, (batch, h, w)).permute(0, 3, 1, 2)


class EmCapsNet(nn.Module):
    """Conv1, primary matrix capsules, two convolutional capsule layers, class capsules; EM routing between them.

    68,444 parameters at every image size (the paper says 68K, with five classes instead of ten). Shapes beside the
    steps are at 28x28.
    """

    def __init__(self, spec: EmCapsNetSpec, image_size: int = 28, folder: Path | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.image_size = image_size
        b, (c, d) = spec.primary_types, spec.capsule_types
        self.conv1 = nn.Conv2d(1, spec.channels, 5, stride=2)
        self.pose = nn.Conv2d(spec.channels, b * 16, 1)
        self.activation = nn.Conv2d(spec.channels, b, 1)
        self.conv_caps1 = ConvCapsules(b, c, kernel=3, stride=2, iterations=spec.iterations)
        self.conv_caps2 = ConvCapsules(c, d, kernel=3, stride=1, iterations=spec.iterations)
        # One W for all places of a type. From beta_a = -1000 on, a class that gets no votes starts at 0.2, not at 0.5.
        self.class_caps = MatrixCapsules(d, CLASSES, spec.iterations, beta_a=-1000.0)

    def class_votes(self, poses: Tensor) -> Tensor:
        """Votes [B, h*w*D, 10, 16] of poses [B, D, 16, h, w] for the classes, with coordinate addition (section 4).

        The place of a capsule, its row and column scaled to [0, 1], is added to the first two elements of the
        right-hand column of its vote: W is shared by all places and could not tell them otherwise.
        """
        batch, types, _, h, w = poses.shape
        fields = poses.permute(0, 3, 4, 1, 2).reshape(batch * h * w, types, 4, 4)  # [B*h*w, D, 4, 4]
        votes = self.class_caps.votes(fields).view(batch, h, w, types, CLASSES, 16)
        place = votes.new_zeros(h, w, 16)
        place[:, :, 3] = ((torch.arange(h, device=votes.device) + 0.5) / h).unsqueeze(1)  # row 0, column 3 of 4x4
        place[:, :, 7] = ((torch.arange(w, device=votes.device) + 0.5) / w).unsqueeze(0)  # row 1, column 3
        return (votes + place[:, :, None, None]).flatten(1, 3)

    def forward(self, images: Tensor, iterations: int | None = None, trace: bool = False) -> Output:
        """Activations a_j and poses of the classes for images [B, 1, H, W] float32 in [0, 1].

        Args:
            iterations: passes of EM at test time, if others than the spec's; trace: keep those of the class capsules.
        """
        x = F.relu(self.conv1(images))  # [B, 64, 12, 12]
        poses = at_least_float32(self.pose(x)).unflatten(1, (-1, 16))  # [B, 8, 16, 12, 12]
        a = at_least_float32(self.activation(x)).sigmoid()  # [B, 8, 12, 12]
        with torch.autocast(images.device.type, enabled=False):
            poses, a = self.conv_caps1(poses, a, iterations)  # [B, 16, 16, 5, 5], [B, 16, 5, 5]
            poses, a = self.conv_caps2(poses, a, iterations)  # [B, 16, 16, 3, 3], [B, 16, 3, 3]
            a = a.permute(0, 2, 3, 1).flatten(1)  # [B, 3*3*16]
            routed = self.class_caps.route(self.class_votes(poses), a, iterations, trace)
        return Output(routed.scores, routed.poses, routed.couplings, routed.trace)  # [B, 10], [B, 10, 16]
