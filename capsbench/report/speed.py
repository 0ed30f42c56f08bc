"""Figures of what `capsbench bench` wrote: the roofline of its machine, and how cost grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from capsbench.files import whole_file
from capsbench.report.figures.style import COLOURS, INK, LINES, MARKERS, WIDTH, canvas, house_style, tidy


def draw_speed(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write roofline.{png,pdf} and growth.{png,pdf}, whatever the result has of them; the paths of the PNGs."""
    with house_style():
        figures = {}
        if any(row["flops"] and row["moved_bytes"] for row in result["rows"]):
            figures["roofline"] = _roofline(result)
        if any(result.get("growth", {}).values()):
            figures["growth"] = _growth(result["growth"])
        for name, figure in figures.items():
            for kind in ("png", "pdf"):
                with whole_file(folder / f"{name}.{kind}") as path:
                    figure.savefig(path, format=kind)
    return [folder / f"{name}.png" for name in figures]


def _roofline(result: Mapping[str, Any]) -> Figure:
    """FLOP/s against FLOPs a byte, under the rates of copies and matrix products measured in the same run.

    Where bytes cannot be counted (a captured step, kernels of ours) a mark on the right-hand edge shows the rate alone,
    of the fastest such row of each precision and phase.
    """
    figure = canvas(WIDTH, 4.2)
    axes = figure.subplots()
    rows = [row for row in result["rows"] if row["flops"] and row["moved_bytes"]]
    bandwidth = result["copy_bytes_per_second"] / 1e9
    intensity = [row["flops"] / row["moved_bytes"] for row in rows]
    timed = {row["precision"] for row in result["rows"]}
    peaks = {name: rate / 1e9 for name, rate in result["product_flops_per_second"].items() if name in timed}
    low = min(intensity) / 8
    high = max(*(4 * x for x in intensity), *(2 * peak / bandwidth for peak in peaks.values()))  # past every ridge
    for line, precision in zip(LINES, [p for p in ("float32", "bf16", "tf32") if p in peaks], strict=False):
        ridge = peaks[precision] / bandwidth
        axes.plot([low, ridge, high], [low * bandwidth, peaks[precision], peaks[precision]], color=INK, ls=line, lw=1.1)
        axes.annotate(f"{precision} product", (high, peaks[precision]), (-4, 4), textcoords="offset points", ha="right")
    uncounted = fastest_uncounted(result["rows"])
    kinds = list(dict.fromkeys((row["name"], row["precision"]) for row in [*rows, *uncounted]))
    for row, x in zip([*rows, *uncounted], [*intensity, *[high] * len(uncounted)], strict=True):
        look = kinds.index((row["name"], row["precision"]))
        filled = row["phase"] == "training"
        axes.plot(
            x,
            row["flops_per_second"] / 1e9,
            MARKERS[look % len(MARKERS)],
            color=COLOURS[look % len(COLOURS)],
            markerfacecolor=COLOURS[look % len(COLOURS)] if filled else "white",
            markersize=7,
            clip_on=False,
            zorder=3,
            label=f"{row['name']}, {row['precision']}, {row['phase']}" + ("" if row["moved_bytes"] else " (edge)"),
        )
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    edge = "; on the edge: bytes not counted" if uncounted else ""
    axes.set_xlabel(f"FLOPs per byte that the operations read or write{edge}")
    axes.set_ylabel("GFLOP/s")
    _plain_numbers(axes)
    tidy(axes)
    once = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(once.values(), once.keys(), loc="outside upper left", ncols=2)
    return figure


def fastest_uncounted(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the rows whose operations were counted and bytes were not, the fastest of each precision and phase."""
    fastest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        if row["flops"] and not row["moved_bytes"]:
            kind = row["precision"], row["phase"]
            fastest[kind] = max(fastest.get(kind, row), row, key=lambda each: each["images_per_second"])
    return list(fastest.values())


def _growth(growth: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Images a second and memory of a step against batch, input capsules and, where it was measured, seeds at once."""
    columns = {"batch": "batch", "inputs": "input capsules", "seeds": "seeds at once"}
    columns = {what: label for what, label in columns.items() if growth.get(what)}
    kinds = list(dict.fromkeys((row["name"], row["precision"]) for what in columns for row in growth[what]))
    figure = canvas(WIDTH, 5.4)
    panels = figure.subplots(2, len(columns), sharex="col", squeeze=False)
    once: dict[Any, Any] = {}
    for column, (what, label) in zip(panels.T, columns.items(), strict=True):
        for axes, value in zip(
            column, (lambda row: row["images_per_second"], lambda row: row["peak_bytes"] / 1e6), strict=True
        ):
            _curves(axes, growth[what], kinds, value)
        if what == "seeds":  # what they gain is a few percent, or a factor: not to be drawn larger than it is
            for axes in column:
                axes.set_yscale("linear")
                axes.set_ylim(0, 1.1 * axes.dataLim.y1)
                axes.yaxis.set_major_locator(MaxNLocator(5))
                axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))
        if any(row["name"].endswith(", captured") for row in growth[what]):
            label += "\n(captured: MB with the optimiser's)"
        column[1].set_xlabel(label)
        sizes = sorted({row["size"] for row in growth[what]})
        column[1].set_xticks(sizes, [f"{size}" for size in sizes], rotation=30)
        once |= dict(zip(*reversed(column[0].get_legend_handles_labels()), strict=True))
    panels[0][0].set_ylabel("images per second, training")
    panels[1][0].set_ylabel("MB per step, besides the weights")
    figure.legend(once.values(), once.keys(), loc="outside upper left", ncols=3)
    return figure


def _curves(axes: Axes, rows: Sequence[Mapping[str, Any]], kinds: Sequence[tuple[str, str]], value: Any) -> None:
    """A curve of each (name, precision) in `kinds` that `rows` hold, in its colour everywhere."""
    for i, kind in enumerate(kinds):
        mine = [row for row in rows if (row["name"], row["precision"]) == kind]
        if not mine:
            continue
        axes.plot(
            [row["size"] for row in mine],
            [value(row) for row in mine],
            color=COLOURS[i % len(COLOURS)],
            ls=LINES[i % len(LINES)],
            marker=MARKERS[i % len(MARKERS)],
            label=", ".join(kind),
        )
    axes.set(xscale="log", yscale="log")
    _plain_numbers(axes)
    tidy(axes)


def _plain_numbers(axes: Axes) -> None:
    """Numbers as one writes them, some between powers of ten too."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))
        axis.set_minor_locator(NullLocator())
