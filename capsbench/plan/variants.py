"""Variant specs: what a model is, in words and numbers, without torch.

A spec is flat. Every default is the paper's choice ("Dynamic Routing Between Capsules", arXiv 1710.09829); where the
authors' released code does something else, the option is called `official`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator, model_validator

from capsbench.errors import nearest
from capsbench.plan.routings import CUSTOM_PASSES, CUSTOM_ROUTING, ROUTINGS, is_custom

Reconstruction = Literal["none", "paper", "official"]
Loss = Literal["margin", "cross-entropy", "sigmoid-cross-entropy", "nll", "spread"]
LinkedLoss = Literal["margin", "cross-entropy", "sigmoid-cross-entropy", "spread"]  # of models that end in logits
Squash = Literal["hinton", "half", "exp", "tanh", "ratio"]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Strict(BaseModel):
    """A checked mapping: unknown keys and wrong types are errors, values never change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Spec(Strict):
    """What every variant says."""

    SCALED: ClassVar[tuple[str, ...]] = ()  # the widths that a plan's `width` multiplies
    WORDS: ClassVar[frozenset[str]] = frozenset({"title", "source", "home"})  # for tables: they decide no weight

    title: str = ""  # the row's name in tables, if the variant's name does not do
    source: str = ""  # paper and section, or whose idea it is
    home: Literal["mnist", "affnist", "multimnist", "two_digit"] = "mnist"  # the task at whose size it is counted
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

    def takes_any_size(self) -> bool:
        """Whether the model looks at images of another size than it was built for: two digits side by side, say."""
        return False

    def routes(self) -> bool:
        """Whether the model has capsules and couplings between them."""
        return False


class RoutingOptions(Strict):
    """How capsules of one layer send their votes to the next.

    A variant that names another routing than its `base` gets that routing's own passes, squash, normaliser and options
    (`OF_THE_ROUTING`), and not its base's; so does one that says nothing of them.
    """

    OF_THE_ROUTING: ClassVar[tuple[str, ...]] = ("iterations", "squash", "normaliser", "routing_options")

    routing: str = "dynamic"  # a name of capsbench.routing, or my_file:my_routing
    iterations: PositiveInt = 3  # r: passes, the first with uniform couplings (procedure 1)
    # W_ij of each pair | of each primary type | of all positions and types
    share: Literal["none", "type", "all"] = "none"
    normaliser: Literal["softmax", "leaky", "sigmoid"] | None = None  # over the OUTPUT capsules (eq. 3: softmax)
    squash: Squash | None = None  # of the output capsules (eq. 1: hinton); null: the routing has none
    detach_inner: bool = False  # True: gradient through the last pass only (not what the authors do)
    bias: Literal["paper", "official"] = "paper"  # official: a [classes, dim] bias added to s_j before each squash
    routing_options: dict[str, Any] = {}  # options that only this routing takes, such as alpha or prior

    @model_validator(mode="before")
    @classmethod
    def _as_the_routing_has_it(cls, values: Any) -> Any:
        """What is not said is the routing's own."""
        if not isinstance(values, dict) or not isinstance(values.get("routing", ""), str):
            return values
        facts = ROUTINGS.get(values.get("routing", "dynamic"))
        own: dict[str, Any] = {"iterations": facts.passes if facts else CUSTOM_PASSES}
        if facts:
            own |= {"squash": facts.squash, "normaliser": facts.normaliser}
        return {**values, **{key: value for key, value in own.items() if values.get(key) is None}}

    @field_validator("routing_options")
    @classmethod
    def _can_be_written_down(cls, options: dict[str, Any]) -> dict[str, Any]:
        """A run's digest and manifest hold them as JSON."""
        for key, value in options.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise ValueError(f"{key} is {value}; options are finite numbers, words, lists, mappings") from None
        return options

    @model_validator(mode="after")
    def _routing_takes_it(self) -> Self:
        """Every switch is one that the routing knows; what a routing from outside knows is seen when it is built."""
        if CUSTOM_ROUTING.fullmatch(self.routing):
            return self
        facts = ROUTINGS.get(self.routing)
        if facts is None:
            hint = (
                "; outside the package it is my_file:my_routing"
                if is_custom(self.routing) or "." in self.routing
                else ""
            )
            raise ValueError(f"there is no routing {self.routing!r}{hint or nearest(self.routing, ROUTINGS)}")
        if facts.passes == 1 and self.iterations != 1:
            raise ValueError(f"routing {self.routing} makes one pass: iterations must be 1, not {self.iterations}")
        said = {
            "squash": self.squash if self.squash != facts.squash else None,
            "normaliser": self.normaliser if self.normaliser != facts.normaliser else None,
            "detach_inner": self.detach_inner or None,
            "bias": self.bias if self.bias != "paper" else None,
        }
        for key, value in said.items():
            if value is not None and key not in facts.takes:
                raise ValueError(f"routing {self.routing} takes no {key}, which is {value!r} here")
        for key in self.routing_options:
            if key in facts.takes:
                raise ValueError(f"routing_options names {key}, which is said beside routing and not among its options")
            if key not in facts.options:
                hint = nearest(key, facts.options) if facts.options else "; it takes none."
                raise ValueError(f"routing_options: routing {self.routing} takes no option {key!r}{hint}")
        return self


def _routing_and_loss(spec: CapsNetSpec | TwoDigitSpec) -> None:
    """Raise ValueError where the routing's scores are not what the loss takes; a routing from outside knows best."""
    if spec.routing == "inverted-attention" and "cross-entropy" not in spec.loss:
        raise ValueError(
            f"routing inverted-attention scores with logits, for its capsules are all of one length: "
            f"loss must be cross-entropy or sigmoid-cross-entropy, not {spec.loss}"
        )
    scores_are_lengths = spec.routing != "inverted-attention" and not is_custom(spec.routing)
    if "cross-entropy" in spec.loss and scores_are_lengths and getattr(spec, "head", "capsules") == "capsules":
        raise ValueError(f"routing {spec.routing} scores with lengths in [0, 1), and loss {spec.loss} takes logits")
    if spec.loss == "nll" and spec.routing != "self-routing" and not is_custom(spec.routing):
        raise ValueError(f"loss nll takes scores that sum to 1, which self-routing gives and {spec.routing} does not")


def _length_and_loss(spec: CnnSpec | TwoDigitSpec) -> None:
    """Raise ValueError where scores are lengths in [0, 1), but the loss takes logits."""
    if spec.scores == "length" and spec.loss not in ("margin", "spread"):
        raise ValueError(f"scores: length gives lengths in [0, 1): loss must be margin or spread, not {spec.loss}")


class DecoderOptions(Strict):
    """A decoder that draws the digit from the vector of one class (section 4.1), trained beside the classes."""

    dim: PositiveInt = 16  # of each class's vector (DigitCaps)
    reconstruction: Reconstruction = "none"  # the weight of the squared error beside the loss; none: no decoder
    decoder: list[PositiveInt] = [512, 1024]  # its hidden layers
    mask: Literal["class", "agnostic"] = "class"  # what it sees: the class's vector in its place, or alone


class CapsNetSpec(DecoderOptions, RoutingOptions, Spec):
    """The CapsNet of section 4, figures 1 and 2."""

    SCALED = ("channels", "primary_types", "decoder")

    model: Literal["capsnet"]
    loss: Loss = "margin"
    channels: PositiveInt = 256  # Conv1
    kernel: PositiveInt = 9  # Conv1 and PrimaryCapsules
    primary_types: PositiveInt = 32
    primary_dim: PositiveInt = 8
    primary_squash: Squash | Literal["none"] = "hinton"
    primary_scale: Literal["paper", "official"] = "paper"  # official: pre-activation times 1/primary_types
    init: Literal["paper", "official"] = "paper"  # the paper is silent: PyTorch's defaults, W ~ N(0, 0.1)

    @model_validator(mode="after")
    def _loss_takes_the_scores(self) -> Self:
        _routing_and_loss(self)
        return self

    def smallest_image(self) -> int:
        """Two `kernel` convolutions without padding, the second of stride 2."""
        return 2 * self.kernel - 1

    def routes(self) -> bool:
        """It does, uniform couplings included."""
        return True


class CnnSpec(DecoderOptions, Spec):
    """A plain convolutional network: convolutions with ReLU (and pooling), dense layers, classes."""

    # Not the dense layers: dropout over two dozen features stops a narrow network from learning.
    SCALED = ("channels", "decoder")

    model: Literal["cnn"]
    loss: LinkedLoss = "cross-entropy"
    channels: list[PositiveInt]
    kernels: list[PositiveInt]
    pools: list[PositiveInt] = []  # max-pool of that size and stride after each convolution; 1 is none
    padding: Literal["same", "valid"] = "same"
    head: Literal["dense", "average"] = "dense"  # average: global average pooling in the place of flattening
    strides: list[PositiveInt] = []  # of each convolution; 1 when not said
    dense: list[PositiveInt] = []
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
        _length_and_loss(self)
        return self

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


class EmCapsNetSpec(Spec):
    """Matrix capsules with EM routing (Hinton, Sabour and Frosst 2018), its small configuration."""

    SCALED = ("channels", "primary_types", "capsule_types")

    model: Literal["em-capsnet"]
    loss: Literal["spread", "margin"] = "spread"
    channels: PositiveInt = 64  # A: the 5x5 convolution of stride 2
    primary_types: PositiveInt = 8  # B
    capsule_types: list[PositiveInt] = Field(default=[16, 16], min_length=2, max_length=2)  # C, D: 3x3, stride 2 and 1
    iterations: PositiveInt = 3

    def smallest_image(self) -> int:
        """One place left after 5x5 of stride 2, 3x3 of stride 2 and 3x3 of stride 1, none padded."""
        return 17

    def routes(self) -> bool:
        """By EM, in three layers; the couplings of the last are looked at."""
        return True


class TwoDigitSpec(RoutingOptions, Spec):
    """The two-digit transfer's models: one small trunk, then pooling and dense layers, or capsules."""

    SCALED = ("channels", "dense")

    model: Literal["two-digit"]
    loss: LinkedLoss = "margin"
    down_weight: Annotated[float, Field(gt=0)] = 0.25  # as in the source; 0.5 is a variant
    channels: list[PositiveInt] = Field(default=[64, 64, 128, 128], min_length=4, max_length=4)
    head: Literal["pool", "capsules"]
    pooling: Literal["average", "sum", "max"] = "average"
    dense: list[PositiveInt] = [128]  # hidden layers of the pooling head; [] is a linear head
    scores: Literal["classes", "length"] = "classes"  # of the pooling head: as a CNN's
    dim: PositiveInt = 16
    share: Literal["all"] = "all"  # one W for all positions: the only sharing that takes images of any size

    @model_validator(mode="after")
    def _loss_takes_the_scores(self) -> Self:
        _routing_and_loss(self)
        _length_and_loss(self)
        if self.head == "capsules" and self.scores != "classes":
            raise ValueError(
                "scores can be set only with head: pool; with head: capsules they are the lengths of the capsules"
            )
        return self

    def takes_any_size(self) -> bool:
        """By pooling, or by one W for all positions."""
        return True

    def smallest_image(self) -> int:
        """Two 3x3 convolutions, a 2x2 pooling, two more 3x3 convolutions, none padded."""
        return 14

    def routes(self) -> bool:
        """With capsules, not with pooling."""
        return self.head == "capsules"


SPECS: dict[str, type[Spec]] = {
    "capsnet": CapsNetSpec,
    "cnn": CnnSpec,
    "resnet": ResNetSpec,
    "em-capsnet": EmCapsNetSpec,
    "two-digit": TwoDigitSpec,
}
# Modules are named, not imported: a run's source digest follows imports, and one model is not another's business.
MODELS = {
    "capsnet": "capsbench.models.capsnet:CapsNet",
    "cnn": "capsbench.models.cnn:Cnn",
    "resnet": "capsbench.models.resnet:ResNet",
    "em-capsnet": "capsbench.models.em_capsnet:EmCapsNet",
    "two-digit": "capsbench.models.two_digit:TwoDigit",
}


def checked(spec: Spec, values: dict[str, Any]) -> Spec:
    """The spec with other values, held to its rules. Raises ValueError saying what is wrong with them."""
    try:
        return type(spec).model_validate(spec.model_dump() | values)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
