"""Figure: MNIST digits, right and wrong, and their reconstructions."""

from __future__ import annotations

from capsbench.report.figures import Drawing
from capsbench.report.figures.decoded import reconstruction_figure
from capsbench.report.published import Published
from capsbench.report.results import Results


def draw(results: Results, published: Published) -> Drawing:
    """Draw it. Raises NotDrawnError if no run of a variant with a decoder is finished."""
    return reconstruction_figure(results, "mnist", "test", "Reconstructions of right and wrong digits")
