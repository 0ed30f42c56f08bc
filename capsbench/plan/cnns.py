"""The specs of convolutional networks: plain ones, and residual ones."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from capsbench.plan.spec import DecoderOptions, Fraction, LinkedLoss, Spec, length_and_loss


class CnnSpec(DecoderOptions, Spec):
    """A plain convolutional network: convolutions with ReLU (and pooling), dense layers, classes."""

    # Not the dense layers: dropout over two dozen features stops a narrow network from learning.
    SCALED = ("channels", "decoder")

    model: Literal["cnn"]
    loss: LinkedLoss = "cross-entropy"
    channels: list[PositiveInt]
    kernels: list[PositiveInt]
    pools: list[PositiveInt] = Field(default=[])  # max-pool of that size and stride after each convolution; 1 is none
    padding: Literal["same", "valid"] = "same"
    head: Literal["dense", "average"] = "dense"  # average: global average pooling instead of flattening
    strides: list[PositiveInt] = Field(default=[])  # of each convolution; 1 when not said
    dense: list[PositiveInt] = Field(default=[])
    scores: Literal["classes", "length"] = "classes"  # ten linear scores | the squashed lengths of ten vectors (eq. 1)
    dropout: Fraction = 0.0  # before the classes (section 5: "dropout", rate not stated; 0.5 is customary)
    conv_dropout: Fraction = 0.0  # after each pooling

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        if len(self.kernels) != len(self.channels):
            raise ValueError(f"channels names {len(self.channels)} convolutions, kernels {len(self.kernels)}")
        for key in ("pools", "strides"):
            if (said := getattr(self, key)) and len(said) != len(self.channels):
                raise ValueError(f"channels names {len(self.channels)} convolutions, {key} {len(said)}")
        if self.padding == "same" and any(stride > 1 for stride in self.strides):
            raise ValueError("strides need padding: valid; a convolution that keeps the size has none")
        return self

    @model_validator(mode="after")
    def _lengths_have_their_loss(self) -> Self:
        length_and_loss(self.loss, self.scores)
        return self

    def idle(self) -> dict[str, str]:
        """As of every spec; beside the loss's, the decoder's and the layers'."""
        idle = super().idle() | self.idle_of_decoder()
        if self.reconstruction == "none" and self.scores == "classes":
            idle["dim"] = "without reconstruction or scores: length no class has a vector"
        if max(self.pools, default=1) == 1:
            idle["conv_dropout"] = "it comes after each pooling, and pools names none"
        return idle

    def takes_any_size(self) -> bool:
        """With global average pooling."""
        return self.head == "average"

    def smallest_image(self) -> int:
        """Walk back from one pixel through poolings and unpadded convolutions."""
        size = 1
        ones = [1] * len(self.kernels)
        layers = list(zip(self.kernels, self.pools or ones, self.strides or ones, strict=True))
        for kernel, pool, stride in reversed(layers):
            size *= pool
            if self.padding == "valid":
                size = (size - 1) * stride + kernel
        return size


class ResNetSpec(Spec):
    """A residual network: 3x3 convolutions with batch normalisation in stages, global average pooling, classes."""

    SCALED = ("channels",)

    model: Literal["resnet"]
    loss: LinkedLoss = "cross-entropy"
    channels: list[PositiveInt] = Field(min_length=1)  # of each stage; every stage but the first halves the image
    blocks: PositiveInt = 2  # residual blocks a stage, of two convolutions each

    def takes_any_size(self) -> bool:
        """By global average pooling."""
        return True
