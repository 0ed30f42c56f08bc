"""Figure: MNIST test error with intervals."""

from __future__ import annotations

from capsbench.report.figures import Drawing
from capsbench.report.figures.dots import interval_figure
from capsbench.report.published import Published
from capsbench.report.results import Results


def draw(results: Results, published: Published) -> Drawing:
    """Draw it. Raises NotDrawnError if no run has the metric."""
    return interval_figure(
        results, published, "mnist", "error", "Test error with its interval, and the paper's figures"
    )
