"""The two questions that everybody asks first, answered by the verdicts on the claims that bear on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from capsbench.report.captions import listing
from capsbench.report.claims_file import ClaimRow, ClaimsFile
from capsbench.report.verdicts.sides import SUGGESTED

Outcome = Literal["better", "worse", "no different", "undecided", "not run"]


@dataclass(frozen=True)
class Question:
    """A question, and what the ids of claims say of CapsNet (or of routing): that it is better, worse, no different."""

    words: str
    if_worse: str  # the answer where nothing is better and something worse
    claims: dict[str, Outcome]
    meaning: str = ""  # of its words, said behind the answer


QUESTIONS = (
    Question(
        "Does CapsNet beat the best fair CNN?",
        "No",
        {  # no CNN that the paper denies CapsNet's decoder and loss, and no capsules but CapsNet's
            "mnist-capsnet-beats-fair-cnn": "better",  # the CNN with CapsNet's own loss and decoder
            "mnist-capsnet-beats-resnet-parameters": "better",
            "mnist-capsnet-beats-resnet-flops": "better",
            "mnist-tuned-capsnet-beats-fair-cnn": "better",
            "mnist-tuned-capsnet-beats-resnet-parameters": "better",
            "mnist-tuned-capsnet-beats-resnet-flops": "better",
            "affnist-average-beats-capsnet": "worse",  # the CNN that is known to win
            "affnist-synth-average-beats-capsnet": "worse",  # where the official files are not to be had
            "multimnist-capsnet-beats-fair-cnn": "better",
        },
        "Fair: with its decoder and loss, a ResNet of its size, or one that averages; the paper's own CNN is none of "
        "these.",
    ),
    Question(
        "Does routing matter?",
        "Yes, for the worse",
        {
            "mnist-routing-helps": "better",
            "mnist-routing-alone": "no different",
            "mnist-routing-beats-learned-type": "better",
            "mnist-routing-beats-learned-all": "better",
            "mnist-routing-beats-uniform-all": "better",
            "affnist-routing-harms": "worse",
            "affnist-routing-harms-shared": "worse",
            "affnist-synth-routing-harms": "worse",  # where the official files are not to be had
            "affnist-synth-routing-harms-shared": "worse",
            "multimnist-routing-helps": "better",
            "two-digit-routing-helps": "better",
            "two-digit-routing-helps-beside": "better",
            "two-digit-dynamic-harms": "worse",
        },
    ),
)
OPPOSITE: dict[Outcome, Outcome] = {"better": "worse", "worse": "better"}
HIGHER_IS_BETTER = ("accuracy",)


@dataclass(frozen=True)
class Answer:
    """A question with its answer: one or two words, a sentence, and the claims behind it with their outcomes."""

    words: str
    short: str
    sentence: str
    claims: list[tuple[ClaimRow, Outcome]]


def answers(judged: ClaimsFile) -> list[Answer]:
    """Every question of which claims.json holds a claim, in the order of QUESTIONS.

    What is about other data is left out beside what is not: where affNIST is official, the synthetic set is not open.
    """
    given = []
    for question in QUESTIONS:
        told = [(claim, said) for name, said in question.claims.items() if (claim := judged.get(name)) is not None]
        found = [(claim, said) for claim, said in told if claim.reason != "other data"] or told
        if found:
            outcomes = [(claim, outcome(claim, said)) for claim, said in found]
            sentence = f"{_sentence(outcomes)} {question.meaning}".rstrip()
            given.append(Answer(question.words, _short(outcomes, question.if_worse), sentence, outcomes))
    return given


@dataclass(frozen=True)
class Untested:
    """One kind of reason why claims were not run: how many, and each reason with its number."""

    kind: str
    count: int
    reasons: list[tuple[str, int]]


def untested(judged: ClaimsFile) -> list[Untested]:
    """Why claims were not run, the most frequent kind first."""
    kinds: dict[str, Counter[str]] = {}
    for claim in judged.claims:
        if claim.verdict == "not run":
            kinds.setdefault(str(claim.reason), Counter())[claim.why.rstrip(".")] += 1
    found = [Untested(kind, reasons.total(), reasons.most_common()) for kind, reasons in kinds.items()]
    return sorted(found, key=lambda untested: -untested.count)


def outcome(claim: ClaimRow, said: Outcome) -> Outcome:
    """What a claim's verdict says of the thing in question, if the claim says that it is `said`."""
    if claim.verdict == "undecided":
        return "undecided"
    if claim.verdict == "not run":
        return "not run"
    if claim.verdict == "reproduced":
        return said
    if said in OPPOSITE:
        return OPPOSITE[said]
    if claim.effect is None or claim.effect == 0:
        return "undecided"
    grows = any(word in (claim.metric or "") for word in HIGHER_IS_BETTER)
    return "better" if (claim.effect > 0) == grows else "worse"


def _short(outcomes: list[tuple[ClaimRow, Outcome]], if_worse: str) -> str:
    found = {said for _, said in outcomes}
    if found == {"not run"}:
        return "Not tested"
    decided = found - {"not run", "undecided"}
    if not decided:
        return "Undecided"
    if "better" in decided:
        word = "Yes" if decided == {"better"} else "In part"
    else:
        word = if_worse if "worse" in decided else "No"
    count = sum(said in decided for _, said in outcomes)  # one comparison of many must not read as the answer
    if count == len(outcomes):
        return word
    if word == "In part":
        return f"In part: {count} of {len(outcomes)} decided, open in the others"
    return f"{word} in {count} of {len(outcomes)}, open in the others"


def _sentence(outcomes: list[tuple[ClaimRow, Outcome]]) -> str:
    kinds: tuple[Outcome, ...] = ("better", "worse", "no different", "undecided", "not run")
    counts = {kind: sum(said == kind for _, said in outcomes) for kind in kinds}
    if counts["not run"] == len(outcomes):
        return f"None of its {len(outcomes)} comparisons has been run."
    words = listing(f"{kind} in {count}" for kind, count in counts.items() if count)
    decided = [
        f"{claim.sentence.rstrip('.')}: {claim.verdict}."
        for claim, _ in outcomes
        if claim.verdict in ("reproduced", "not reproduced")
    ]
    told = f" Decided: {' '.join(decided)}" if len(decided) in (1, 2) and len(decided) < len(outcomes) else ""
    suggested = sum(claim.reason == SUGGESTED for claim, _ in outcomes)
    where = "which other seeds judge, in the plan that is named beside the claim"
    others = f" These runs suggested {suggested} of the latter, {where}." if suggested else ""
    return f"Of {len(outcomes)} comparisons: {words}.{told}{others}"
