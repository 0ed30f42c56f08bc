"""Figure: the ladder from the CNN to CapsNet, a panel a task, with what each rung has and costs."""

from __future__ import annotations

from matplotlib.axes import Axes

from capsbench.report.against_reference import Compared, compared, factor_words, readable
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.dots import draw_interval, limits_around
from capsbench.report.figures.style import INK, MUTED, PALE, WIDTH, canvas, tidy, wrapped
from capsbench.report.ladder_table import cost_of, ladder_caption
from capsbench.report.results import Results
from capsbench.report.wide import with_interval


def draw(results: Results) -> Drawing:
    """Draw it. Raises NotDrawnError if the plan has no ladder, or no rung of it is finished."""
    rows = [row for row in readable(results, compared(results, "ladder")) if row.metric.headline]
    panels: dict[tuple[str, str], list[Compared]] = {}
    for row in rows:
        panels.setdefault((row.task, row.condition), []).append(row)
    panels = {key: of for key, of in panels.items() if any(row.own.n for row in of)}
    if not panels:
        raise NotDrawnError("the plan has no ladder" if not rows else "no rung of the ladder is finished")
    figure = canvas(WIDTH, 0.5 + sum(0.75 + 0.42 * len(of) for of in panels.values()))
    grid = figure.subplots(
        len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": [0.75 + 0.42 * len(of) for of in panels.values()]}
    )
    for axes, ((task, condition), of) in zip(grid[:, 0], panels.items(), strict=True):
        _panel(axes, results, of)
        axes.set_title(f"{task}, {condition}" if condition != "test" else task)
        axes.set_xlabel(of[0].metric.heading)
    title, *words = ladder_caption(results, gains=False)
    explained = "Dot and bar: mean over seeds and Student's t 95 % interval; the line leads from rung to rung."
    explained += " An arrow: the interval extends beyond the panel."
    return Drawing(figure, title.rstrip("."), " ".join([explained, *words]), [task for task, _ in panels])


def _panel(axes: Axes, results: Results, rows: list[Compared]) -> None:
    """One task under one condition: the rungs from above to below."""
    found = [(y, row.own.mean) for y, row in enumerate(rows) if row.own.mean is not None]
    means = [mean for _, mean in found]
    axes.plot(means, [y for y, _ in found], color=PALE, lw=1.5, zorder=1)
    limits = limits_around(means, rows[0].metric.unit, room=0.25)
    for y, row in enumerate(rows):
        draw_interval(axes, row.own, y, limits)
        parameters, flops = cost_of(results, row)
        cost = "" if parameters is None else f"\n{parameters / 1e6:.2f} M parameters"
        cost += "" if flops is None else f", {flops / 1e6:{',.0f' if flops >= 1e7 else '.2g'}} MFLOPs"
        words = f"{with_interval(row.own, row.metric.unit)}  n={row.own.n}{cost}"
        axes.text(1.02, y, words, transform=axes.get_yaxis_transform(), va="center", fontsize=7.5, color=INK)
        factor, value, _ = factor_words(row.row.differs)
        if row.row.reference is not None:
            words = factor if "factors:" in factor else f"{factor}: {value}"
            axes.text(
                -0.018, y + 0.3, _short(words), transform=axes.get_yaxis_transform(), ha="right", va="center",
                fontsize=6.5, color=MUTED,
            )  # fmt: skip
    axes.set_yticks(range(len(rows)), [wrapped(results.plan.title(row.row.variant), 48) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(*limits)
    tidy(axes, "x")
    axes.tick_params(axis="y", pad=8)  # an arrow head has room beside the panel
    axes.spines["left"].set_visible(False)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
