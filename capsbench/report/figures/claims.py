"""Figure: every judged claim as an interval against what is claimed, a panel a family."""

from __future__ import annotations

import textwrap

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from capsbench.errors import counted
from capsbench.plan.claims import PARAMETERS, Claim
from capsbench.report.captions import budget_words, listing
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import COLOURS, INK, MUTED, PALE, WIDTH, canvas, tidy
from capsbench.report.results import Results
from capsbench.report.statistics import Estimate
from capsbench.report.tables import spec_for
from capsbench.report.verdicts import Judged, Judgement
from capsbench.report.verdicts.words import possible, span, unit_of

PAPER = COLOURS[5]
CLAIMED_SIDE = {"less": "<", "greater": ">"}
DASHED = (0, (4, 3))
LOOKS = {  # verdict -> marker and colour: told apart in grey by the marker
    "reproduced": ("o", COLOURS[0]),
    "not reproduced": ("X", COLOURS[2]),
    "undecided": ("s", COLOURS[1]),
}


def draw(results: Results) -> Drawing:
    """Draw it. Raises NotDrawnError if no claim could be judged."""
    judged = results.judged
    families = _families(judged, results) if judged is not None else {}
    if judged is None or not families:
        raise NotDrawnError("no claim could be judged by these results")
    rows = [len(found) for found in families.values()]
    figure = canvas(WIDTH, 0.7 + sum(0.75 + 0.36 * count for count in rows))
    panels = figure.subplots(len(families), 1, squeeze=False, height_ratios=[count + 1.2 for count in rows])[:, 0]
    above = ""
    for axes, ((family, words), found) in zip(panels, families.items(), strict=True):
        _panel(axes, found, words)
        if family != above:
            axes.set_title(textwrap.fill(judged.claims.families[family], 72), fontsize=9)
        above = family
    used = [verdict for verdict in LOOKS if any(j.verdict == verdict for found in families.values() for j in found)]
    handles = [Line2D([], [], color=LOOKS[v][1], marker=LOOKS[v][0], ms=6, lw=2, label=v) for v in used]
    drawn = [judgement.claim for found in families.values() for judgement in found]
    figure.legend(handles=[*handles, *_claimed_handles(drawn)], loc="outside upper left", ncols=4, fontsize=8.5)
    counts = listing(f"{count} {verdict}" for verdict, count in judged.counts().items())
    caption = [
        "Mark and bar: our value with its interval, which is also printed at the right. The interval is the",
        "Holm-adjusted one for a claimed direction or equality, and the 95 % one for a claimed value or an equality",
        "that is not reproduced; it is cut off at 0 and 100 %. A comparison shows the claimed cell minus the other, or",
        "minus the number that it has to beat. Diamond and band: what is claimed, with its tolerance. Dashed line: no",
        "difference, or the number to beat; the triangle on it points to the claimed side.",
        f"Budget: {budget_words(results)}. All claims: {counts}.{_not_drawn(judged, families)}",
    ]
    tasks = dict.fromkeys(side.task for found in families.values() for judgement in found for side in judgement.sides)
    return Drawing(figure, "The claims and their verdicts", " ".join(caption), list(tasks))


def _claimed_handles(drawn: list[Claim]) -> list[Artist]:
    """What stands for the claims themselves, as far as it is drawn."""

    def mark(marker: str, words: str, size: float) -> Artist:
        return Line2D([], [], color=PAPER, marker=marker, ms=size, mfc="white", mew=1.2, lw=0, label=words)

    handles: list[Artist] = []
    if any(claim.delta is not None for claim in drawn):
        handles += [mark("D", "claimed", 5), Patch(facecolor=PALE, label="tolerance")]
    for direction, words in (("greater", "claimed: more than"), ("less", "claimed: less than")):
        if any(claim.direction == direction for claim in drawn):
            handles.append(mark(CLAIMED_SIDE[direction], words, 4))
    if any(claim.kind != "value" for claim in drawn):
        words = "no difference, or the claimed bound"
        handles.append(Line2D([], [], color=MUTED, lw=1, ls=DASHED, label=words))
    return handles


def _not_drawn(judged: Judged, families: dict[tuple[str, str], list[Judgement]]) -> str:
    """What is undecided without an interval, as one seed is, has nothing to draw."""
    drawn = [id(judgement) for found in families.values() for judgement in found]
    missing = sum(j.verdict != "not run" and id(j) not in drawn for j in judged.judgements)
    return f" Not drawn, for lack of an interval: {counted(missing, 'judged claim')}." if missing else ""


def _families(judged: Judged, results: Results) -> dict[tuple[str, str], list[Judgement]]:
    """The claims that have an estimate, by family and what the axis shows: a panel has one."""
    found: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in judged.judgements:
        if judgement.estimate is not None:
            found.setdefault((judgement.claim.family, _axis(judgement, results)), []).append(judgement)
    return found


def _deciding(judgement: Judgement, estimate: Estimate) -> tuple[float, float]:
    """The interval by which the verdict was found: Holm's, but for values and for equalities that do not hold."""
    refuted = judgement.claim.kind == "no_difference" and judgement.verdict == "not reproduced"
    return estimate.interval() if refuted or judgement.adjusted is None else judgement.adjusted


def _axis(judgement: Judgement, results: Results) -> str:
    """What is drawn, with its unit. Numbers of parameters lie apart by powers of ten: they are drawn per claimed."""
    claim = judgement.claim
    if claim.metric == PARAMETERS and claim.kind == "value":
        return "parameters, % of the claimed number"
    labels = {metric.name: metric.label for metric in spec_for(judgement.sides[0].task, results).main}
    metric = labels.get(claim.metric or "", (claim.metric or "").replace("_", " "))
    unit = unit_of(judgement)
    if claim.kind == "value":
        return f"{metric}, {unit}" if unit else metric
    what = "difference" if claim.expected is None else "ours minus the claimed bound"
    return f"{what}, {unit}" if unit else f"{what}, {metric}"


def _panel(axes: Axes, found: list[Judgement], words: str) -> None:
    """One family: a line a claim, from above."""
    axes.use_sticky_edges = False  # of bars: marks at the panel's edge would be cut
    if any(judgement.claim.kind != "value" for judgement in found):
        axes.axvline(0, color=MUTED, lw=1, ls=DASHED, zorder=1)
    for y, judgement in enumerate(found):
        claim, estimate = judgement.claim, judgement.estimate
        assert estimate is not None  # chosen so
        centre = claim.expected if claim.kind == "value" else 0.0
        scale = 100 / centre if centre and claim.metric == PARAMETERS else 1.0
        if claim.delta is not None and centre is not None:
            band = scale * claim.delta
            axes.barh(y, 2 * band, left=scale * centre - band, height=0.62, color=PALE, zorder=0)
            axes.plot(scale * centre, y, "D", color=PAPER, mfc="white", mew=1.4, ms=5, zorder=2)
        elif claim.direction is not None:
            axes.plot(0, y - 0.34, CLAIMED_SIDE[claim.direction], color=PAPER, mfc="white", mew=1, ms=4, zorder=2)
        ends = _deciding(judgement, estimate)
        low, high = (scale * end for end in possible(judgement, *ends))
        marker, colour = LOOKS[judgement.verdict]
        axes.plot([low, high], [y, y], color=colour, lw=2, solid_capstyle="butt", zorder=3)
        axes.plot(scale * estimate.value, y, marker, color=colour, ms=6, mec="white", mew=0.8, zorder=4)
        measured = f", n={judgement.n}\n{span(judgement, *ends)}"
        text = judgement.verdict + ("" if claim.metric == PARAMETERS else measured)
        axes.text(1.015, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7.5, color=INK)
    labels = ["\n".join(textwrap.wrap(judgement.claim.sentence, 52)) for judgement in found]
    axes.set_yticks(range(len(found)), labels, fontsize=7)
    axes.set_ylim(len(found) - 0.45, -0.55)
    axes.set_xlabel(words, fontsize=8)
    tidy(axes, "x")
    axes.spines["left"].set_visible(False)
