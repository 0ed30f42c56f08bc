"""A fully connected capsule layer: votes u_hat = W u (equation 2), then routing by agreement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from capsbench.plan.variants import RoutingOptions
from capsbench.routing import build_routing, resolve
from capsbench.routing.checks import option_names
from capsbench.routing.fused import runs
from capsbench.routing.layer import joined
from capsbench.routing.types import Routed

VOTE_BYTES = 12 * 2**20  # of the images whose votes are made at a time on a CPU: 17 of the paper's CapsNet at 28x28


def routing_keywords(options: RoutingOptions) -> dict[str, Any]:
    """What a routing is told beside its own options; one that does not take an option refuses it by name.

    The package's own are told the squash and normaliser that they take, one from outside those that the plan says.
    What they take is read from their code, which a run's digest covers, and not from the plan's table of them.
    """
    keywords: dict[str, Any] = dict(options.routing_options)
    outside = ":" in options.routing
    takes = () if outside else option_names(resolve(options.routing))
    for switch in ("squash", "normaliser"):
        value = getattr(options, switch)
        if value is not None and (outside or switch in takes):
            keywords[switch] = value
    if options.detach_inner:
        keywords["detach_inner"] = True
    if options.bias == "official":
        keywords["bias"] = 0.1  # every bias of the authors' code starts there
    return keywords


class CapsuleLayer(nn.Module):
    """Lower capsules [B, I, d] to output capsules [B, J, D].

    Args:
        types, places: the I = types * places lower capsules, a type's places beside each other. `places` may be None
            where W is shared by all: such a layer takes any number of inputs.
        child_dim: d; outputs: J; dim: D.
        options: routing, iterations, share, normaliser, squash, detach_inner, bias and the routing's own options.
        folder: where a routing named `my_file:my_routing` lies.
    """

    def __init__(
        self,
        *,
        types: int,
        places: int | None,
        child_dim: int,
        outputs: int,
        dim: int,
        options: RoutingOptions,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.share = options.share
        self.iterations = options.iterations
        self.places = places
        self.check_values = False  # True: NaN and infinity in what is routed are errors, at the price of a wait
        self.fused = False  # True: votes rebuilt on the fly wherever that is possible; equal up to rounding
        kinds = {"none": types * (places or 0), "type": types, "all": 1}[options.share]
        self.weight = nn.Parameter(torch.empty(kinds, outputs, child_dim, dim))  # W [I | types | 1, J, d, D]
        self.routing = build_routing(
            options.routing,
            inputs=types * places if places else None,
            outputs=outputs,
            dim=dim,
            child_dim=child_dim,
            folder=folder,
            **routing_keywords(options),
        )

    def votes(self, u: Tensor, rows: Tensor | None = None) -> Tensor:
        """u_hat_{j|i} = W_ij u_i (equation 2): u [B, I, d] to u_hat [B, I, J, D].

        `rows`: `_rows` of W, where they are made once for several calls.
        """
        if self.share == "none" and u.device.type == "cpu":
            return _votes_on_cpu(u, _rows(self.weight) if rows is None else rows, self.weight.shape[1])
        if self.share == "none":
            return torch.einsum("bid,ijde->bije", u, self.weight)
        if self.share == "type":
            u_typed = u.unflatten(1, (self.weight.shape[0], -1))  # [B, types, places, d]
            return torch.einsum("btpd,tjde->btpje", u_typed, self.weight).flatten(1, 2)
        return torch.einsum("bid,jde->bije", u, self.weight[0])

    def forward(self, u: Tensor, iterations: int | None = None, trace: bool = False) -> Routed:
        """Route lower capsules u [B, I, d] float32; `iterations` takes the place of the layer's own r."""
        if self.fused and not (trace or self.check_values) and self.fusible() and runs(u, self.weight):
            return self.routing.fused(u, self.weight, self.iterations if iterations is None else iterations)
        rows = _rows(self.weight) if self.share == "none" and u.device.type == "cpu" else None
        parts = u.split(self._images_at_a_time(u))
        routed = [self._route(some, self.votes(some, rows), iterations, trace) for some in parts]
        return routed[0] if len(routed) == 1 else joined(routed)

    def fusible(self) -> bool:
        """Whether its votes can be rebuilt on the fly (`capsbench.routing.fused`), a matter of its options alone."""
        return self.share == "none" and self.routing.fusible()

    def _images_at_a_time(self, u: Tensor) -> int:
        """As many as have VOTE_BYTES of votes on a CPU; all for code from outside, which may look across the batch."""
        if ":" in self.routing.routing_name or u.device.type != "cpu" or not u.numel():
            return max(1, len(u))
        outputs, _, dim = self.weight.shape[1:]
        return max(1, VOTE_BYTES // (u.shape[1] * outputs * dim * u.element_size()))

    def _route(self, u: Tensor, votes: Tensor, iterations: int | None, trace: bool) -> Routed:
        return self.routing(
            votes,
            children=u,
            iterations=self.iterations if iterations is None else iterations,
            trace=trace,
            check_values=self.check_values,
        )


def _rows(weight: Tensor) -> Tensor:
    """W [I, J, d, D] as one matrix a lower capsule, [I, d, J*D]."""
    return weight.permute(0, 2, 1, 3).flatten(2)


def _votes_on_cpu(u: Tensor, rows: Tensor, outputs: int) -> Tensor:
    """Votes [B, I, J, D] of u [B, I, d] and `_rows` of W, laid out [I, B, J, D] as the product leaves them."""
    votes: Tensor = _Products.apply(u.transpose(0, 1), rows)  # [I, B, J*D]
    return votes.transpose(0, 1).unflatten(2, (outputs, -1))


class _Products(torch.autograd.Function):
    """I products [B, d] x [d, N], contiguous in both directions: else the library takes them one by one, and copies."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, rows: Tensor) -> Tensor:
        u = u.contiguous()
        ctx.save_for_backward(u, rows)
        return torch.bmm(u, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        u, rows = ctx.saved_tensors
        g = g.contiguous()
        return torch.bmm(g, rows.transpose(1, 2)), torch.bmm(u.transpose(1, 2), g)


def capsule_layers(model: nn.Module) -> list[CapsuleLayer]:
    """A model's capsule layers."""
    return [module for module in model.modules() if isinstance(module, CapsuleLayer)]
