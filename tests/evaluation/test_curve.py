"""Reading accuracy off at a held-out accuracy: exact without noise, unbiased with it, and honest where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsbench.errors import DataError
from capsbench.evaluation.curve import NotMatchedError, read_curve, read_off

LEVEL = 0.9922


def array(*values: float) -> np.ndarray:
    return np.array(values)


def first_crossing(held_out: np.ndarray, measured: np.ndarray, level: float) -> float:
    """What not to do: interpolate where the curve crosses the level for the first time."""
    k = int(np.argmax(held_out >= level))
    share = (level - held_out[k - 1]) / (held_out[k] - held_out[k - 1])
    return float(measured[k - 1] + share * (measured[k] - measured[k - 1]))


def test_between_two_evaluations_it_is_linear() -> None:
    held_out, measured = array(0.90, 0.94, 0.98, 0.99), array(0.60, 0.70, 0.78, 0.79)
    assert read_off(held_out, measured, 0.95) == pytest.approx(0.72, abs=1e-12)
    assert read_off(held_out, measured, 0.98) == pytest.approx(0.78, abs=1e-12)
    assert read_off(held_out, measured, 0.90) == pytest.approx(0.60, abs=1e-12)
    assert read_off(held_out, measured, 0.99) == pytest.approx(0.79, abs=1e-12)


def test_affnist_accuracy_may_fall_while_held_out_accuracy_rises() -> None:
    assert read_off(array(0.90, 0.96), array(0.7, 0.6), 0.92) == pytest.approx(0.7 - 0.1 / 3, abs=1e-12)


def test_evaluations_that_fall_back_are_pooled() -> None:
    held_out, measured = array(0.90, 0.96, 0.92, 0.98), array(0.60, 0.70, 0.62, 0.78)
    # (0.96, 0.92) become one pool at 0.94 with 0.66; 0.96 lies half way from there to 0.98
    assert read_off(held_out, measured, 0.96) == pytest.approx(0.72, abs=1e-12)


def test_a_level_that_is_never_reached_is_not_matched() -> None:
    with pytest.raises(NotMatchedError, match=r"reached 98\.00% and not 99\.22%"):
        read_off(array(0.9, 0.98), array(0.6, 0.7), LEVEL)


def test_one_lucky_evaluation_does_not_reach_a_level() -> None:
    with pytest.raises(NotMatchedError, match=r"smoothed to rise only, reached 98\.\d+%"):
        read_off(array(0.9, 0.98, 0.993, 0.981, 0.979), array(0.6, 0.7, 0.71, 0.7, 0.7), LEVEL)


def test_a_curve_that_begins_above_the_level_cannot_be_interpolated() -> None:
    with pytest.raises(NotMatchedError, match=r"99\.50% already .* smaller probe_every"):
        read_off(array(0.995, 0.996), array(0.6, 0.7), LEVEL)


@settings(max_examples=40)
@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=30),
    st.lists(st.floats(0, 1), min_size=30, max_size=30),
    st.floats(0, 1),
)
def test_the_value_lies_among_those_measured(held_out: list[float], measured: list[float], level: float) -> None:
    values = np.array(measured[: len(held_out)])
    try:
        value = read_off(np.array(held_out), values, level)
    except NotMatchedError:
        return
    assert values.min() - 1e-9 <= value <= values.max() + 1e-9


@pytest.mark.parametrize("jitter", [0.0003, 0.0006, 0.001])
@pytest.mark.parametrize("shared", [0.0, 2.0])  # how far affNIST accuracy jitters with held-out accuracy
def test_on_noisy_curves_it_is_less_biased_than_the_first_crossing(jitter: float, shared: float) -> None:
    rng = np.random.default_rng(0)
    step = np.arange(200, 19_600, 200.0)
    held_out = np.minimum(0.9955, 0.975 + 0.0205 * np.log(step / 200 + 1) / np.log(98))
    measured = 0.60 + 0.04 * np.log(step / 200)
    truth = float(np.interp(np.interp(LEVEL, held_out, step), step, measured))
    ours, naive = [], []
    for _ in range(300):
        noise = jitter * rng.standard_normal(len(step))
        noisy = held_out + noise, measured + shared * noise + 0.004 * rng.standard_normal(len(step))
        ours.append(read_off(*noisy, LEVEL))
        naive.append(first_crossing(*noisy, LEVEL))
    bias, naive_bias = np.mean(ours) - truth, np.mean(naive) - truth
    assert abs(bias) < 0.0007  # 0.07 percentage points: three standard errors of 300 curves, and a tenth of a seed's
    assert abs(bias) < abs(naive_bias) / 2
    assert np.std(ours) < np.std(naive)


def test_without_noise_both_agree() -> None:
    held_out, measured = np.linspace(0.9, 0.999, 40), np.linspace(0.6, 0.8, 40)
    assert read_off(held_out, measured, LEVEL) == pytest.approx(first_crossing(held_out, measured, LEVEL), abs=1e-12)


def test_a_curve_is_read_in_the_order_of_steps_to_the_last_bit(tmp_path) -> None:
    (tmp_path / "curve.csv").write_text("step,a,other\n20,0.30000000000000004,x\n10,0.1,y\n")
    curve = read_curve(tmp_path, ["a"])
    assert curve.to_dict("list") == {"step": [10.0, 20.0], "a": [0.1, 0.30000000000000004]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "is not there"),
        ("", "truncated or has other columns"),
        ("step,b\n1,2\n", "truncated or has other columns"),
        ("step,a\n1,0.5\n2,ab", "truncated or has other columns"),
        ("step,a\n1,0.5\n2\n", "has an empty cell"),
        ("step,a\n", "has no rows"),
        ("step,a\n1,inf\n", "has an empty cell"),
    ],
)
def test_a_damaged_curve_is_one_sentence(tmp_path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "curve.csv").write_text(text)
    with pytest.raises(DataError, match=rf"^[^\n]*curve\.csv [^\n]*{reason}[^\n]*manifest\.json to train it again\.$"):
        read_curve(tmp_path, ["a"])
