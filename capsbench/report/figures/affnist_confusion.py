"""Figure: which digits are taken for which under affine transforms."""

from __future__ import annotations

from capsbench.report.figures import Drawing
from capsbench.report.figures.confusion import confusion_figure
from capsbench.report.published import Published
from capsbench.report.results import Results


def draw(results: Results, published: Published) -> Drawing:
    """Confusion matrices of the converged models."""
    return confusion_figure(results, "affnist", "converged", "Confusions under affine transforms, converged models")
