"""What the specs of all models have in common, and the choices that several of them offer."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

Reconstruction = Literal["none", "paper", "official"]
Loss = Literal["margin", "cross-entropy", "sigmoid-cross-entropy", "nll", "spread"]
LinkedLoss = Literal["margin", "cross-entropy", "sigmoid-cross-entropy", "spread"]  # of models that end in logits
Squash = Literal["hinton", "half", "exp", "tanh", "ratio"]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Width = Annotated[float, Field(ge=1e-6, le=1)]  # of layers, as a share of the variant's own; each keeps one unit


class Strict(BaseModel):
    """A checked mapping: unknown keys and wrong types are errors, values never change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Said(Strict):
    """A mapping in which no key lacks its value: YAML's nothing would be the default without a word."""

    EMPTY: ClassVar[str] = "has no value; write one"

    @model_validator(mode="before")
    @classmethod
    def _no_key_is_empty(cls, values: Any) -> Any:
        empty = [key for key, value in values.items() if value is None] if isinstance(values, dict) else []
        if empty:
            raise ValueError(f"{empty[0]} {cls.EMPTY}, or remove the key")
        return values


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

    def idle(self) -> dict[str, str]:
        """The keys that do nothing beside what else is said here, each with what puts it out of work."""
        return {} if self.loss == "margin" else {"down_weight": f"loss {self.loss} has no lambda"}

    def smallest_image(self) -> int:
        """The smallest height or width in pixels that the model can take."""
        return 1

    def takes_any_size(self) -> bool:
        """Whether the model looks at images of another size than it was built for: two digits side by side, say."""
        return False

    def routes(self) -> bool:
        """Whether the model has capsules and couplings between them."""
        return False


class DecoderOptions(Strict):
    """A decoder that draws the digit from the vector of one class (section 4.1), trained beside the classes."""

    dim: PositiveInt = 16  # of each class's vector (DigitCaps)
    reconstruction: Reconstruction = "none"  # the weight of the squared error beside the loss; none: no decoder
    decoder: list[PositiveInt] = [512, 1024]  # its hidden layers
    mask: Literal["class", "agnostic"] = "class"  # what it sees: the class's vector in its place, or alone

    def idle_of_decoder(self) -> dict[str, str]:
        """Of this decoder's keys those that do nothing, as `Spec.idle` has them."""
        return dict.fromkeys(("decoder", "mask"), "reconstruction is none") if self.reconstruction == "none" else {}


def writable(options: dict[str, Any]) -> dict[str, Any]:
    """Options for code of a kind that a run's digest and manifest hold as JSON. Raises ValueError for any other."""
    for key, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError(f"{key} is {value}; options are finite numbers, words, lists, mappings") from None
    return options


def length_and_loss(loss: str, scores: str) -> None:
    """Raise ValueError where scores are lengths in [0, 1), but the loss takes logits."""
    if scores == "length" and loss not in ("margin", "spread"):
        raise ValueError(f"scores: length gives lengths in [0, 1): loss must be margin or spread, not {loss}")
