"""Figures: one small file each kind. A figure whose data are not there is not drawn, and the report says why.

A figure is a function from results to a Drawing, named in `figures()`; matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capsbench.files import whole_file, write_text
from capsbench.report.captions import other_data
from capsbench.report.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Draw = Callable[[Results], "Drawing"]


def figures() -> dict[str, Draw]:
    """Every figure: the name of its files and the function that draws it, in the order of the report."""
    from capsbench.report.figures import (
        affnist_curves,
        affnist_factors,
        axes,
        claims,
        cost,
        hardest,
        ladder,
        mnist_attacks,
        mnist_calibration,
        multimnist_overlap,
        multimnist_pictures,
        perturbations,
        routing,
        training_curves,
        two_digit_accuracy,
        two_digit_curves,
        two_digit_top2,
    )
    from capsbench.report.figures.confusion import confusion_figure
    from capsbench.report.figures.decoded import reconstruction_figure
    from capsbench.report.figures.dots import interval_figure

    mnist_error = "Test error with its interval, and the paper's figures"
    affnist_accuracy = "Accuracy on transformed digits, at matched held-out accuracy and converged"
    multimnist_error = "Exact-set error on two overlapping digits"
    affnist_confusion = "Confusions under affine transforms, converged models"
    reconstructions = "Reconstructions of right and wrong digits"
    affnist_reconstructions = "Reconstructions of transformed digits"
    return {
        "claims": claims.draw,
        "mnist_error": partial(interval_figure, task="mnist", metric="error", title=mnist_error),
        "mnist_confusion": lambda results: confusion_figure(results, "mnist", "test", "Confusions on MNIST"),
        "mnist_calibration": mnist_calibration.draw,
        "mnist_attacks": mnist_attacks.draw,
        "hardest": hardest.draw,
        "reconstructions": lambda results: reconstruction_figure(results, "mnist", "test", reconstructions),
        "perturbations": perturbations.draw,
        "affnist_accuracy": partial(interval_figure, task="affnist", metric="accuracy", title=affnist_accuracy),
        "affnist_curves": affnist_curves.draw,
        "affnist_factors": affnist_factors.draw,
        "affnist_confusion": lambda results: confusion_figure(results, "affnist", "converged", affnist_confusion),
        "affnist_reconstructions": lambda results: reconstruction_figure(
            results, "affnist", "converged", affnist_reconstructions
        ),
        "multimnist_error": partial(interval_figure, task="multimnist", metric="error", title=multimnist_error),
        "multimnist_pictures": multimnist_pictures.draw,
        "multimnist_overlap": multimnist_overlap.draw,
        "two_digit_top2": two_digit_top2.draw,
        "two_digit_accuracy": two_digit_accuracy.draw,
        "two_digit_curves": two_digit_curves.draw,
        "ladder": ladder.draw,
        "axes": axes.draw,
        "routing": routing.draw,
        "cost": cost.draw,
        "training_curves": training_curves.draw,
    }


class NotDrawnError(Exception):
    """The data of a figure are not there; the message says which."""


@dataclass
class Drawing:
    """A figure before it is written; `tasks`: those whose test sets it is about, none where it is about training."""

    figure: Figure
    title: str
    caption: str
    tasks: Sequence[str] = ()


@dataclass(frozen=True)
class DrawnFigure:
    """A figure's files. `caption` also lies beside them as <name>.txt."""

    name: str
    title: str
    caption: str
    png: Path
    pdf: Path


def draw_figures(results: Results, folder: Path) -> tuple[list[DrawnFigure], dict[str, str]]:
    """Draw every figure into `folder`. Returns those drawn, and for each other name the reason why it was not.

    Drawing the same results again gives the same bytes. A figure of an earlier report that cannot be drawn any more is
    removed: it would show runs that are not there.
    """
    from capsbench.report.figures.style import house_style

    folder.mkdir(parents=True, exist_ok=True)  # Snakemake waits for it, also where all runs failed
    drawn, not_drawn = [], {}
    for name in figures():
        try:
            with house_style():
                drawn.append(_write(draw_figure(name, results), name, folder))
        except NotDrawnError as reason:
            not_drawn[name] = str(reason)
            for ending in ("png", "pdf", "txt"):
                (folder / f"{name}.{ending}").unlink(missing_ok=True)
    return drawn, not_drawn


def draw_figure(name: str, results: Results) -> Drawing:
    """One figure, with the name of its data in it where they are not the paper's: a picture travels without caption.

    To be called in `house_style`. Raises NotDrawnError where its data are not there.
    """
    from capsbench.report.figures.style import footnote

    drawing = figures()[name](results)
    if words := other_data(results, drawing.tasks):
        footnote(drawing.figure, f"data: {words}")
    return drawing


def _write(drawing: Drawing, name: str, folder: Path) -> DrawnFigure:
    """PNG, PDF and caption, each in one piece and without the time or the version that made it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    from capsbench.report.figures.png import write_png
    from capsbench.report.figures.style import arrange

    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    canvas = FigureCanvasAgg(drawing.figure)  # straight to the canvas: `savefig` draws everything twice
    arrange(drawing.figure)
    write_png(canvas, png)
    with whole_file(pdf) as temporary:
        nothing = {"CreationDate": None, "Producer": None, "Creator": None}
        FigureCanvasPdf(drawing.figure).print_pdf(temporary, metadata=nothing)
    write_text(folder / f"{name}.txt", f"{drawing.title}\n\n{drawing.caption}\n")
    return DrawnFigure(name, drawing.title, drawing.caption, png, pdf)
