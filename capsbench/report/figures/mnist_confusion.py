"""Figure: which digits are taken for which on MNIST."""

from __future__ import annotations

from capsbench.report.figures import Drawing
from capsbench.report.figures.confusion import confusion_figure
from capsbench.report.published import Published
from capsbench.report.results import Results


def draw(results: Results, published: Published) -> Drawing:
    """Confusion matrices of the test images after the last epoch."""
    return confusion_figure(results, "mnist", "test", "Confusions on MNIST")
