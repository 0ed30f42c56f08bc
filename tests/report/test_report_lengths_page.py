"""What docs/two-digits-why.md says of why lengths transfer follows from results/lengths and a stored look."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from pages import BESIDE, REPOSITORY, RESULTS, STACKED, WHY, has_its_seeds, of_seeds, rows_of, said, words_of

RUNS = RESULTS / "lengths" / "runs" / "two_digit"
ROWS = {
    "ten plain ones": "two-digit-sum-linear",
    "lengths, 16 dimensions": "two-digit-sum-vectors",
    "lengths, 1 dimension": "two-digit-sum-vectors-d1",
}


@pytest.fixture(scope="module")
def looks() -> dict[tuple[str, str], dict[str, float]]:
    rows = json.loads((REPOSITORY / "benchmarks" / "results" / "two-from-one.json").read_text())["rows"]
    return {(row["variant"], row["condition"]): row for row in rows}


def test_every_row_has_its_seeds_and_their_mean() -> None:
    has_its_seeds(WHY, ROWS, RUNS)


def test_the_words_have_the_row_of_one_dimension() -> None:
    one, sixteen = (of_seeds(RUNS / name, *STACKED).mean() for name in list(ROWS.values())[:0:-1])
    frame = pd.read_csv(RESULTS / "lengths" / "tables" / "ablation.csv").set_index(["variant", "condition", "metric"])
    row = frame.loc[("two-digit-sum-vectors-d1", *STACKED)]
    told = said(r"quite as well: ([\d.]+) points less, (-[\d.]+) to ([\d.]+) \(side by side", words_of(WHY))
    assert told == pytest.approx([sixteen - one, -row["ci_high"], -row["ci_low"]], abs=0.0501)
    row = frame.loc[("two-digit-sum-vectors-d1", *BESIDE)]
    told = said(r"\(side by side ([\d.]+) less, (-[\d.]+) to ([\d.]+)\)", words_of(WHY))
    assert told == pytest.approx([-row["difference"], -row["ci_high"], -row["ci_low"]], abs=0.0501)
    alone = [of_seeds(RUNS / name, "56x28", "final_exact_above_half_accuracy") for name in list(ROWS.values())[:0:-1]]
    pattern = (
        r"\(([\d.]+), ([\d.]+) and ([\d.]+) % of the pairs one above the other\) "
        r"than any .*? \(([\d.]+), ([\d.]+), ([\d.]+)\)"
    )
    assert said(pattern, words_of(WHY)) == pytest.approx([*alone[0], *alone[1]], abs=0.0501)


def test_the_second_table_is_the_stored_look(looks) -> None:
    for first, cells in rows_of(WHY, ROWS, columns=8).items():
        above, beside = looks[ROWS[first], "56x28"], looks[ROWS[first], "28x56"]
        shares = [above["larger"], above["added"], above["whole"], beside["whole"]]
        assert [float(cell) for cell in cells[:4]] == pytest.approx(shares, abs=0.0501)
        assert [float(cell) for cell in cells[4:]] == pytest.approx(
            [above[of] for of in ("own", "other", "third")], abs=0.00501
        )
        assert above["seed"] == beside["seed"] == 0
    assert len(looks) == 2 * len(ROWS)


def test_the_words_have_the_looks_numbers(looks) -> None:
    above, beside = ({row: looks[row, condition] for row in ROWS.values()} for condition in ("56x28", "28x56"))
    plain = above["two-digit-sum-linear"]
    words = words_of(WHY)
    assert said(r"\(([\d.]+) %\), but gives the other's class (-\d+) where it gives its own (\d+)\.", words) == (
        pytest.approx([plain["larger"], plain["other"], plain["own"]], abs=0.501)
    )
    assert said(r"Adding up costs (\d+) points", words) == pytest.approx([plain["larger"] - plain["added"]], abs=0.501)
    assert said(r"the other's, ([\d.]+) % would be right \(lengths: ([\d.]+) and ([\d.]+)\)", words) == pytest.approx(
        [of["unopposed"] for of in above.values()], abs=0.0501
    )
    between = [of["added"] - of["whole"] for of in (plain, beside["two-digit-sum-linear"])]
    assert said(r"scores more:\*\* another (\d+) points, side by side (\d+),", words) == pytest.approx(
        between, abs=0.501
    )
    rows = ("two-digit-sum-vectors", "two-digit-sum-vectors-d1")
    costs = [above[row]["larger"] - above[row]["added"] for row in rows]
    pattern = r"costs next to nothing\*\* \(([\d.]+) points with 16 dimensions, ([\d.]+) with one\)"
    assert said(pattern, words) == pytest.approx(costs, abs=0.0501)
    lost = [of[row]["added"] - of[row]["whole"] for row in rows for of in (above, beside)]
    pattern = r"is lost between: (\d) and (\d) points with 16 dimensions, (\d) and (\d) with one"
    assert said(pattern, words) == pytest.approx(lost, abs=0.501)
