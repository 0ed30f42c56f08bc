"""Variant specs: what a model is, in words and numbers, without torch.

A spec is flat. Every default is the paper's choice ("Dynamic Routing Between Capsules", arXiv 1710.09829); where the
authors' released code does something else, the option is called `official`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

Reconstruction = Literal["none", "paper", "official"]
Loss = Literal["margin", "cross-entropy", "sigmoid-cross-entropy", "nll"]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Strict(BaseModel):
    """A checked mapping: unknown keys and wrong types are errors, values never change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Spec(Strict):
    """What every variant says."""

    SCALED: ClassVar[tuple[str, ...]] = ()  # the widths that a plan's `width` multiplies

    title: str = ""  # the row's name in tables, if the variant's name does not do
    source: str = ""  # paper and section, or whose idea it is
    loss: Loss
    down_weight: Annotated[float, Field(gt=0)] = 0.5  # margin loss: lambda of the absent classes (section 3)
    train_on: Literal["task", "pairs"] = "task"  # `pairs`: the two-digit task's positive control

    def scaled(self, width: float) -> Self:
        """The spec with every width multiplied by `width`, at least 1."""
        if width == 1:
            return self

        def scale(value: int | list[int]) -> int | list[int]:
            return (
                [max(1, round(v * width)) for v in value] if isinstance(value, list) else max(1, round(value * width))
            )

        return self.model_copy(update={name: scale(getattr(self, name)) for name in self.SCALED})

    def smallest_image(self) -> int:
        """The smallest height or width in pixels that the model can take."""
        return 1


class RoutingOptions(Strict):
    """How capsules of one layer send their votes to the next."""

    routing: str = "dynamic"  # a name of capsbench.routing, or my_file:my_routing
    iterations: PositiveInt = 3  # r: passes, the first with uniform couplings (procedure 1)
    share: Literal["none", "type", "all"] = (
        "none"  # W_ij of each pair | of each primary type | of all positions and types
    )
    normaliser: Literal["softmax", "leaky", "sigmoid"] = "softmax"  # over the OUTPUT capsules (equation 3)
    squash: Literal["hinton", "half", "exp", "tanh", "ratio"] = "hinton"  # equation 1
    detach_inner: bool = False  # True: gradient through the last pass only (not what the authors do)
    bias: Literal["paper", "official"] = "paper"  # official: a [classes, dim] bias added to s_j before each squash
    routing_options: dict[str, Any] = {}  # options that only this routing takes


class CapsNetSpec(Spec, RoutingOptions):
    """The CapsNet of section 4, figures 1 and 2."""

    SCALED = ("channels", "primary_types", "decoder")

    model: Literal["capsnet"]
    loss: Loss = "margin"
    channels: PositiveInt = 256  # Conv1
    kernel: PositiveInt = 9  # Conv1 and PrimaryCapsules
    primary_types: PositiveInt = 32
    primary_dim: PositiveInt = 8
    primary_squash: Literal["hinton", "half", "exp", "tanh", "ratio", "none"] = "hinton"
    primary_scale: Literal["paper", "official"] = "paper"  # official: pre-activation times 1/primary_types
    dim: PositiveInt = 16  # DigitCaps
    init: Literal["paper", "official"] = "paper"  # the paper is silent: PyTorch's defaults, W ~ N(0, 0.1)
    reconstruction: Reconstruction = "none"  # the weight of the squared error beside the margin loss
    decoder: list[PositiveInt] = [512, 1024]  # hidden layers of the decoder (section 4.1)
    mask: Literal["class", "agnostic"] = "class"  # what the decoder sees: the class's capsule in its place, or alone

    def smallest_image(self) -> int:
        """Two `kernel` convolutions without padding, the second of stride 2."""
        return 2 * self.kernel - 1


class CnnSpec(Spec):
    """A plain convolutional network: convolutions with ReLU (and pooling), dense layers, classes."""

    SCALED = ("channels",)  # not the dense layers: dropout over two dozen features stops a narrow network from learning

    model: Literal["cnn"]
    loss: Loss = "cross-entropy"
    channels: list[PositiveInt]
    kernels: list[PositiveInt]
    pools: list[PositiveInt] = []  # max-pool of that size and stride after each convolution; 1 is none
    padding: Literal["same", "valid"] = "same"
    head: Literal["dense", "average"] = "dense"  # average: global average pooling in the place of flattening
    dense: list[PositiveInt] = []
    dropout: Fraction = 0.0  # before the classes (section 4: "dropout", rate not stated; 0.5 is customary)
    conv_dropout: Fraction = 0.0  # after each pooling

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        if len(self.kernels) != len(self.channels):
            raise ValueError(f"channels names {len(self.channels)} convolutions, kernels {len(self.kernels)}")
        if self.pools and len(self.pools) != len(self.channels):
            raise ValueError(f"channels names {len(self.channels)} convolutions, pools {len(self.pools)}")
        return self

    def smallest_image(self) -> int:
        """Walk back from one pixel through poolings and unpadded convolutions."""
        size = 1
        pools = self.pools or [1] * len(self.kernels)
        for kernel, pool in zip(reversed(self.kernels), reversed(pools), strict=True):
            size *= pool
            if self.padding == "valid":
                size += kernel - 1
        return size


class TwoDigitSpec(Spec, RoutingOptions):
    """The two-digit transfer's models: one small trunk, then pooling and dense layers, or capsules with one shared W."""

    SCALED = ("channels", "dense")

    model: Literal["two-digit"]
    loss: Loss = "margin"
    down_weight: Annotated[float, Field(gt=0)] = 0.25  # as in the source; 0.5 is a variant
    channels: list[PositiveInt] = Field(default=[64, 64, 128, 128], min_length=4, max_length=4)
    head: Literal["pool", "capsules"]
    pooling: Literal["average", "sum", "max"] = "average"
    dense: list[PositiveInt] = [128]  # hidden layers of the pooling head; [] is a linear head
    dim: PositiveInt = 16
    share: Literal["all"] = "all"  # one W for all positions: the only sharing that takes images of any size

    def smallest_image(self) -> int:
        """Two 3x3 convolutions, a 2x2 pooling, two more 3x3 convolutions, none padded."""
        return 14


VariantSpec = Annotated[CapsNetSpec | CnnSpec | TwoDigitSpec, Field(discriminator="model")]
SPECS: dict[str, type[Spec]] = {"capsnet": CapsNetSpec, "cnn": CnnSpec, "two-digit": TwoDigitSpec}
# Modules are named, not imported: a run's source digest follows imports, and one model is not another's business.
MODELS = {
    "capsnet": "capsbench.models.capsnet:CapsNet",
    "cnn": "capsbench.models.cnn:Cnn",
    "two-digit": "capsbench.models.two_digit:TwoDigit",
}
