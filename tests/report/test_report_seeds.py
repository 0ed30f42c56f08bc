"""Statistics over seeds where there is no spread: seeds that agree, and counts."""

from __future__ import annotations

from capsbench.report.statistics import difference, exact, one_sample, paired, summarise


def test_seeds_that_agree_are_no_certainty() -> None:
    """Two seeds of a good model often have as many images wrong; an interval of width 0 would decide anything."""
    assert one_sample([5.0, 5.0, 5.0], against=5.0) is None
    assert difference([5.0, 5.0], [4.0, 4.0]) is None
    assert paired([0.3, 0.4], [0.1, 0.2]) is None  # both differ by 0.2, but for rounding
    assert summarise([5.0, 5.0]) == (2, 5.0, 0.0, None, None)
    one_sided = difference([5.0, 5.1], [4.0, 4.0])
    assert one_sided is not None
    assert one_sided.freedom == 1


def test_a_count_has_no_interval_and_is_certain() -> None:
    count = exact(5.0)
    assert count.interval() == (5.0, 5.0)
    assert (count.p_equivalent(6.0), count.p_equivalent(4.0)) == (0.0, 1.0)
