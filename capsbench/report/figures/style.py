"""How figures look: variants are kept apart by colour, line and marker, so that grey print and any eye can tell."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETDOWN, CARETUP
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from capsbench.report.results import Results

INK = "#1c2330"
MUTED = "#6b7380"
PALE = "#d8dce2"
# Okabe and Ito's colours in an order that alternates dark and light, without their yellow, which fades on white.
COLOURS = ["#0072B2", "#E69F00", "#1c2330", "#CC79A7", "#009E73", "#D55E00", "#56B4E9"]
Line = Any  # matplotlib's own type for a dash pattern differs from release to release
LINES: list[Line] = [
    "-",
    (0, (5, 1.6)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
    (0, (9, 2)),
]
MARKERS = "osD^vPX*"
HATCHES = ["", "////", "....", "\\\\\\\\", "xxxx", "----", "++++"]
WIDTH = 8.6  # inches: the report's column
Ends = tuple[float, float]  # the lower and the upper one

RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same picture on every machine
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "xtick.major.pad": 3,
    "ytick.major.pad": 3,
    "text.parse_math": False,  # a variant's name is never a formula
    "text.color": INK,
    "axes.edgecolor": "#9aa1ac",
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": "#e6e8ec",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "hatch.linewidth": 0.7,
    "figure.dpi": 160,
}


class Look(NamedTuple):
    """How one variant is drawn."""

    colour: str
    line: Line
    marker: str


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house's style on the Agg canvas, and leave matplotlib as it was."""
    with mpl.rc_context():
        sns.set_theme(context="notebook", style="whitegrid", rc=RC)
        yield


def looks(results: Results) -> dict[str, Look]:
    """One look a variant, the same in every figure of a plan, in the order in which the plan first names it."""
    return looks_of(dict.fromkeys(variant for variants in results.plan.tasks.values() for variant in variants))


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """One look a name, by its place: the first seven are easiest to tell apart, the first 40 without colour.

    7 colours, 5 lines and 8 markers have no common factor, so that no two of 280 rows are drawn alike.
    """
    return {
        name: Look(
            COLOURS[i % len(COLOURS)],
            LINES[i % len(LINES)],
            MARKERS[i % len(MARKERS)],
        )
        for i, name in enumerate(names)
    }


def canvas(width: float, height: float) -> Figure:
    """An empty figure of so many inches, without pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")


def panel_grid(
    count: int,
    columns: int,
    height: float,
    *,
    above: float = 0.0,
    width: float = WIDTH,
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, so many a line, and the panels; no place after the last of them shows anything.

    Args:
        height: inches a line; above: inches for the legend.
    """
    lines = -(-count // columns)
    figure = canvas(width, height * lines + above)
    grid = list(figure.subplots(lines, columns, sharex=sharex, sharey=sharey, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid[:count]


def tidy(axes: Axes, grid: str = "both") -> None:
    """Frame on the left and below only, a quiet grid behind the data."""
    axes.set_axisbelow(True)
    axes.grid(False)
    axes.grid(True, axis=grid)  # type: ignore[arg-type]
    sns.despine(ax=axes)
    axes.tick_params(which="both", length=0)


def seeds_and_mean(axes: Axes, look: Look, frame: pd.DataFrame, x: str, y: str, marked: bool = True) -> None:
    """One variant's `y` along `x`: each seed a thin line, their mean a thick one, with marks or without.

    Args:
        frame: a row for each seed and x, with the columns `seed`, `x` and `y`; rows without a y are left out.
    """
    frame = frame.dropna(subset=y)
    for _, one in frame.groupby("seed"):
        axes.plot(one[x], one[y], color=look.colour, lw=0.6, alpha=0.4)
    mean = frame.groupby(x)[y].mean()
    marker = look.marker if marked else None
    axes.plot(mean.index, mean, color=look.colour, linestyle=look.line, marker=marker, lw=1.7, ms=4.5)


def bar(axes: Axes, at: float, ends: Ends, limits: Ends, colour: str, lw: float, upright: bool = False) -> None:
    """An interval as a bar at `at` of the other axis; where it leaves the panel's `limits`, an arrow at the edge."""

    def place(along: list[float]) -> tuple[list[float], list[float]]:
        across = [at] * len(along)
        return (across, along) if upright else (along, across)

    inside = [max(ends[0], limits[0]), min(ends[1], limits[1])]
    axes.plot(*place(inside), color=colour, lw=lw, solid_capstyle="butt", zorder=3)
    heads = (CARETDOWN, CARETUP) if upright else ("<", ">")  # upright ones beside the panel would hide its title
    for edge, head, left in zip(limits, heads, (ends[0] < limits[0], ends[1] > limits[1]), strict=True):
        if left:
            axes.plot(*place([edge]), marker=head, color=colour, ms=6, clip_on=False, zorder=4)


def log_scale(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_ylim()
    if high / low < 100:  # hardly a power of ten in it: the numbers between are needed
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.yaxis.set_minor_formatter(NullFormatter())


def number_axis(axes: Axes, numbers: Sequence[float]) -> None:
    """A logarithmic x axis with a tick at each of the numbers and nowhere else."""
    axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{number:,g}" for number in numbers])
    axes.xaxis.set_minor_locator(NullLocator())


def arrange(figure: Figure) -> None:
    """Find the places of a figure's panels once, and to a millionth of its size.

    The solver behind the layout ends in other last digits from time to time, and a PDF writes all of them.
    """
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = axes.get_position(original=True).bounds
        rounded = (round(left, 6), round(bottom, 6), round(width, 6), round(height, 6))
        axes.set_position(rounded, which="original")


def footnote(figure: Figure, words: str) -> None:
    """Small words under a figure of `canvas`, which grows by their line, so that they cover nothing."""
    width, height = figure.get_size_inches()
    line = 0.2  # inches
    figure.set_size_inches(width, height + line)
    share = line / (height + line)
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))  # type: ignore[union-attr,call-arg]
    figure.text(0.995, 0.25 * share, words, ha="right", va="bottom", fontsize=7, color=MUTED)


def label(name: str) -> str:
    """A name as a label: matplotlib hides labels that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def wrapped(name: str, width: int = 31) -> str:
    """A name as a label of several lines, where it needs them."""
    return "\n".join(textwrap.wrap(label(name), width))


def groups(results: Results, task: str, variants: Sequence[str]) -> dict[str, list[str]]:
    """A task's rows as the panels that show them apart: no more in one than there are colours.

    One panel without a name where they are few enough; else the CNNs, the capsules and, on two digits, the rows that
    see their pairs squeezed, each in as many as they need. The last are far from the others: a panel of theirs leaves
    those their scale.
    """
    if len(variants) <= len(COLOURS):
        return {"": list(variants)}
    runs = {name: results.done(task, name) for name in variants}
    kinds: dict[str, list[str]] = {"CNNs": [], "capsules": [], "squeezed pairs": []}
    for name in variants:
        if task == "two_digit" and any(run.sees_squeezed_pairs for run in runs[name]):
            kinds["squeezed pairs"].append(name)
        else:
            kinds["capsules" if any(run.has_capsules for run in runs[name]) else "CNNs"].append(name)
    found: dict[str, list[str]] = {}
    for kind, names in kinds.items():
        count = -(-len(names) // len(COLOURS))
        size = -(-len(names) // max(count, 1))
        for k in range(count):
            found[kind if count == 1 else f"{kind}, {k + 1} of {count}"] = names[k * size : (k + 1) * size]
    return found


def _handles(found: Mapping[str, Look], variants: Sequence[str]) -> list[Line2D]:
    """One line with its marker a variant, as it is drawn."""
    return [
        Line2D([], [], color=found[v].colour, linestyle=found[v].line, marker=found[v].marker, ms=4.5) for v in variants
    ]


def key_beside(axes: Axes, found: Mapping[str, Look], names: Mapping[str, str]) -> None:
    """The legend of one panel at its right: the variants of `names` by these names."""
    labels = [wrapped(name) for name in names.values()]
    axes.legend(
        _handles(found, list(names)), labels, loc="upper left", bbox_to_anchor=(1.0, 1.03), fontsize=8, handlelength=3.2
    )


def key(figure: Figure, results: Results, found: Mapping[str, Look], variants: list[str]) -> None:
    """The legend of the variants by their titles, above the panels, with line and marker as drawn."""
    handles = _handles(found, variants)
    labels = [label(results.plan.title(variant)) for variant in variants]
    figure.legend(handles, labels, loc="outside upper left", ncols=_key_columns(labels), handlelength=3.2)


def room_for_key(results: Results, variants: Sequence[str]) -> float:
    """Inches that the legend of `key` takes beyond two lines, for which figures have room: else panels would shrink."""
    labels = [label(results.plan.title(variant)) for variant in variants]
    lines = -(-len(labels) // _key_columns(labels))
    return 0.19 * max(0, lines - 2)


def _key_columns(labels: Sequence[str]) -> int:
    longest = max(map(len, labels), default=0)
    return max(1, min(len(labels), 4 if longest <= 18 else 3 if longest <= 36 else 2))
