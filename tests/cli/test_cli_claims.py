"""Which runs `capsbench work` claims for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsbench.cli.work import Todo, _claimed, _place
from capsbench.locks import claimed, is_held
from capsbench.pipeline import open_house

PLAN = """
budget: reduced
seeds: [0, 1]
uci_digits: true
training: {steps: 4}
tuning: {steps: 2}
tasks:
  mnist: {variants: [cnn], tuned: true}
"""


@pytest.mark.usefixtures("results", "no_data")
def test_seeds_of_a_row_that_is_to_be_tuned_are_claimed_with_its_one_place(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(PLAN)
    house, source = open_house(tmp_path / "tuned.yaml")
    row = house.cell("mnist", "cnn+tuned")
    runs = [Todo(house, source, row, seed) for seed in row.seeds]
    assert len(runs) == 2
    assert len({_place(run) for run in runs}) == 1
    with _claimed(runs) as is_ours:
        assert is_ours
        assert is_held(_place(runs[0]))
        with _claimed(runs) as is_theirs:
            assert not is_theirs
    untuned = [Todo(house, source, house.cell("mnist", "cnn"), seed) for seed in row.seeds]
    with claimed(_place(untuned[1])), _claimed(untuned) as is_ours:  # one of them is another's
        assert not is_ours
