"""Confusion matrices, one panel a variant: only the wrong answers, since nearly all are right."""

from __future__ import annotations

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from capsbench.errors import counted
from capsbench.report.answers import CLASSES, read_answers
from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.mosaic import HEADLINE
from capsbench.report.figures.style import MUTED, WIDTH, panel_grid, wrapped
from capsbench.report.readers import scored
from capsbench.report.results import Results

PANELS, COLUMNS = 6, 3


def confusion_figure(results: Results, task: str, condition: str, title: str) -> Drawing:
    """Wrong answers per run, true digit against answer. Raises NotDrawnError where no predictions are stored."""
    counts: dict[str, list[np.ndarray]] = {}
    for run in scored(results, task, condition):
        answers = read_answers(results, run, condition)
        if answers is not None and len(answers.labels):
            matrix = np.zeros((CLASSES, CLASSES))  # [true, answer]
            np.add.at(matrix, (answers.labels, answers.predicted), 1)
            counts.setdefault(run.key.variant, []).append(matrix)
    if not counts:
        raise NotDrawnError(f"no finished run of task {task} has a predictions.npz")
    chosen = list(counts)[:PANELS]
    if HEADLINE in counts and HEADLINE not in chosen:
        chosen[-1] = HEADLINE
    wrong = {variant: _wrong(np.mean(counts[variant], axis=0)) for variant in chosen}
    most = max(float(matrix.max()) for matrix in wrong.values())
    columns = min(COLUMNS, len(chosen))
    width = WIDTH if columns == COLUMNS else 3.1 * columns
    figure, panels = panel_grid(len(chosen), columns, 2.85, width=width, sharex=True, sharey=True)
    for k, (axes, variant) in enumerate(zip(panels, chosen, strict=True)):
        _panel(axes, wrong[variant], max(most, 1.0))
        axes.set_title(wrapped(results.plan.title(variant)), fontsize=8.5)
        if k % columns == 0:
            axes.set_ylabel("true digit")
        if k + columns >= len(chosen):
            axes.set_xlabel("answer")
            axes.tick_params(labelbottom=True)  # the lowest of its column, which may stand above an empty place
    runs = "; ".join(f"{results.plan.title(variant)}: {counted(len(counts[variant]), 'run')}" for variant in chosen)
    others = [results.plan.title(variant) for variant in counts if variant not in chosen]
    caption = (
        "How many test images of a digit (row) got a wrong answer (column), as a mean over seeds; right answers are "
        f"left out. From ten on the means are rounded; an empty field means no such answer in any run. {runs}. "
        + (f"Not shown, for lack of space: {'; '.join(others)}. " if others else "")
        + " ".join(conditions_in_words(results, task))
    )
    return Drawing(figure, title, caption, (task,))


def _wrong(matrix: np.ndarray) -> np.ndarray:
    """The matrix [K, K] with zeros on its diagonal."""
    return matrix * (1 - np.eye(len(matrix)))


def _mean(images: float) -> str:
    """A mean number of images: one decimal where it has any and is small, as few runs have few of each."""
    if images == 0:
        return ""
    return f"{images:.1f}".removesuffix(".0") if images < 9.95 else f"{images:.0f}"


def _panel(axes: Axes, matrix: np.ndarray, most: float) -> None:
    words = np.array([[_mean(x) for x in row] for row in matrix])
    diagonal = np.eye(len(matrix), dtype=bool)
    sns.heatmap(
        matrix,
        ax=axes,
        mask=diagonal,
        annot=words,
        fmt="",
        annot_kws={"fontsize": 6.5},
        cmap="Greys",
        norm=PowerNorm(0.5, 0, most * 1.3),  # small counts stay apart, and the darkest still carries white numbers
        square=True,
        cbar=False,
        linewidths=0.4,
        linecolor="#eceef1",
    )
    axes.grid(False)
    axes.tick_params(length=0, labelsize=7, labelrotation=0, labelcolor=MUTED)
