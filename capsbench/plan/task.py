"""What the tasks have in common: the keys that each of them takes, and what they do with less than the protocol."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    Field,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from capsbench.plan.spec import Said, Spec, Width

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Epochs = Annotated[float, Field(gt=0, le=1_000_000)]


def _distinct(seeds: list[int]) -> list[int]:
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds {seeds} name one seed twice")
    return seeds


Names = Annotated[list[str], Field(min_length=1)]
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(_distinct)]
Batch = Annotated[int, Field(gt=0, le=1_000_000)]
Pairs = Annotated[int, Field(gt=0, le=1_000_000_000)]


def _or_says(words: str) -> WrapValidator:
    """A key that takes one of several kinds: what none of them takes is said in these words, and not in pydantic's."""

    def check(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(given)
        except ValidationError:
            raise ValueError(f"{given!r} is {words}") from None

    return WrapValidator(check)


Rows = Annotated[bool | Names, _or_says("neither true nor a list of variants")]
DecayPeriod = Annotated[
    Literal["scaled", "published"] | PositiveInt, _or_says("neither scaled, published nor a number of steps above 0")
]

PUBLISHED_STEPS = 300_000  # the authors' MNIST run: 640 epochs of 60,000 at batch 128
TRAINING_DIGITS = 60_000  # of every data set that a plan may name
TEST_DIGITS = 10_000
CLASSES = 10


class Reduction(NamedTuple):
    """What a plan does with less than the protocol, in words, and what that means for a claim.

    `experiment`: another model or another question, which judges no claim. `training`: shorter, which judges no
    published number. `budget`: as short as the budget `short` says it is, which is said beside every verdict (the
    paper gives no number of steps, the authors' code does). `digits`: fewer test images, which judges no claim whose
    interval is of seeds alone, as it knows nothing of other test digits. `measuring`: fewer seeds, transforms or
    epochs, or images that still show every digit, which widens intervals. `of`: the metrics or conditions that it
    touches, `*` for any letters, so that it bars no claim about others; all, where it names none.
    """

    kind: Literal["experiment", "training", "budget", "digits", "measuring"]
    words: str
    of: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """An entry of plan.json's `reduced`."""
        return {"kind": self.kind, "words": self.words, **({"of": list(self.of)} if self.of else {})}


class TrainingPart(Said):
    """The training keys that a plan, a task or a variant may set; what is nearer to the run wins."""

    epochs: Epochs | None = None
    steps: PositiveInt | None = None
    batch: Batch | None = None
    rate: Annotated[float, Field(gt=0)] | None = None
    decay: Annotated[float, Field(gt=0, le=1)] | None = None
    decay_period: DecayPeriod | None = None
    floor: Annotated[float, Field(ge=0)] | None = None
    precision: Literal["auto", "float32", "bf16"] | None = None

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give either epochs or steps, not both")
        return self

    def over(self, other: TrainingPart) -> TrainingPart:
        """Both parts as one: this one's words win, and a length of its own replaces the other's in either unit."""
        mine, theirs = (part.model_dump(exclude_none=True) for part in (self, other))
        if {"epochs", "steps"} & mine.keys():
            theirs = {key: value for key, value in theirs.items() if key not in ("epochs", "steps")}
        return TrainingPart.model_validate(theirs | mine)


class Axis(Said):
    """Values that variants are trained with, one row each; a bare list is for all of the task's variants."""

    values: Annotated[list[PositiveInt], Field(min_length=1)]
    variants: Names | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, given: Any) -> Any:
        if not isinstance(given, list | dict | Axis):
            raise ValueError(f"{given!r} is not a list of numbers")
        return {"values": given} if isinstance(given, list) else given


class Axes(Said):
    """What a task varies beside its variants."""

    per_class: Axis | None = None  # training digits a class: <variant>+n<value>; all of them are the variant itself
    iterations: Axis | None = None  # passes of routing in training: <variant>+r<value>


class TaskPlan(Said):
    """What every task of a plan may say."""

    NAME: ClassVar[str]
    IMAGE: ClassVar[tuple[int, int]]  # height, width in training
    CONDITIONS: ClassVar[tuple[str, ...]]  # what evaluation measures, in the order of the table
    DECAY_PERIOD: ClassVar[int] = 2000  # published: the rate falls by `decay` every so many steps
    FULL_STEPS: ClassVar[int] = PUBLISHED_STEPS  # of which a shorter training's period is a part: both end at one rate
    TRAINING: ClassVar[tuple[str, ...]] = ("train_images", "train_per_class")
    ROWS: ClassVar[tuple[str, ...]] = ("variants", "axes", "tuned", "bf16", "reference", "references", "ladder")

    variants: Names
    axes: Axes = Axes()
    tuned: Rows = False  # for all variants, or for those named: a second row, <variant>+tuned
    bf16: Rows = False  # likewise: a second row trained in bf16, <variant>+bf16
    reference: str | None = None  # the row that the others are compared with in table `ablation`
    references: dict[str, str] = Field(default={})  # for single rows, before it: row -> the row it is compared with
    ladder: list[str] = Field(default=[])  # rows of table `ladder`, each compared with the one before it
    seeds: Seeds | None = None
    width: Width | None = None  # instead of the plan's
    widths: dict[str, Width] = Field(default={})  # of single variants, before both
    training: TrainingPart = TrainingPart()
    train_images: PositiveInt | None = None  # the first so many training digits; all when not said
    train_per_class: PositiveInt | None = None  # of these so many of each class
    test_images: PositiveInt | None = None  # the first so many test digits; all when not said

    @model_validator(mode="after")
    def _has_so_many_digits(self) -> Self:
        for name in ("test_images", "attack_images", "routing_images", "factor_images"):
            if (asked := getattr(self, name, None) or 0) > TEST_DIGITS:
                raise ValueError(f"{name} is {asked:,}, and there are {TEST_DIGITS:,} test digits")
        if len(self.ladder) == 1:
            raise ValueError(f"ladder names only {self.ladder[0]}; each row is compared with the one before: name two")
        return self

    def training_options(self) -> dict[str, Any]:
        """What is part of a run's digest: the size of the images, and the options that decide training."""
        return {"image": list(self.IMAGE), **{key: getattr(self, key) for key in self.TRAINING}}

    def evaluation_options(self) -> dict[str, Any]:
        """The options that only evaluation reads."""
        training_side = {*self.ROWS, "seeds", "width", "widths", "training", "download_official", *self.TRAINING}
        return {key: value for key, value in self.model_dump().items() if key not in training_side}

    def conditions(self, spec: Spec) -> tuple[str, ...]:
        """What evaluation measures of a variant, in the order of the table."""
        return self.CONDITIONS

    def reductions(self) -> list[Reduction]:
        """What this plan measures with less than the protocol has, in words."""
        words = []
        if self.train_images is not None and self.train_images < TRAINING_DIGITS:
            words.append(Reduction("experiment", f"{self.train_images:,} training digits"))
        if self.train_per_class is not None:
            words.append(Reduction("experiment", f"{self.train_per_class:,} training digits a class"))
        if self.test_images is not None and self.test_images < TEST_DIGITS:
            words.append(Reduction("digits", f"{self.test_images:,} of {TEST_DIGITS:,} test digits"))
        return words

    def unfit(self, spec: Spec) -> str | None:
        """Why a variant cannot take this task's images, or None."""
        need = spec.smallest_image()
        if min(self.IMAGE) < need:
            return (
                f"needs images of at least {need}x{need} pixels, task {self.NAME} has {self.IMAGE[0]}x{self.IMAGE[1]}"
            )
        if spec.model == "two-digit" and self.NAME != "two_digit":  # type: ignore[attr-defined]
            return f"is a model of the two_digit task and cannot be trained on {self.NAME}"
        if spec.train_on == "pairs" and self.NAME != "two_digit":
            return f"has train_on: pairs, which only the two_digit task knows, not {self.NAME}"
        if spec.train_on == "pairs" and not spec.takes_any_size():
            return "has train_on: pairs, images twice as large as digits, but its model takes images of one size only"
        if spec.train_on == "pairs" and getattr(spec, "reconstruction", "none") != "none":
            return (
                "has train_on: pairs and a decoder, which draws pictures of one digit's size; set reconstruction: none"
            )
        return None
