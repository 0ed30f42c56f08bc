"""Which runs `capsbench work` begins, in which order; what trains and evaluates is a stand-in that writes manifests."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from finished_runs import Asked, chosen, finished
from rich.console import Console

from capsbench.cli import work as working
from capsbench.cli.expected import expected_seconds
from capsbench.data.source import DataSource
from capsbench.errors import PlanError
from capsbench.files import write_json
from capsbench.locks import claimed, is_held, sole
from capsbench.pipeline import open_house
from capsbench.plan import Cell, House
from capsbench.plan.tuning import GRID


def test_only_what_is_named_is_worked_on_in_the_plans_order(begun: list[str], asked: Asked) -> None:
    assert asked(tasks=("mnist",), variants=("capsnet-r3-recon",), seeds=(2, 0))[0] == 0
    assert begun == [f"{plan} mnist/capsnet-r3-recon {seed}" for plan in "ab" for seed in (0, 2)]
    begun.clear()
    asked(variants=("multimnist-cnn", "cnn"), seeds=(1,))
    assert begun == [f"{plan} {cell} 1" for plan in "ab" for cell in ("mnist/cnn", "multimnist/multimnist-cnn")]


def test_seeds_that_go_at_once_are_those_named(begun: list[str], asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", "3")
    assert asked(tasks=("mnist",), variants=("cnn",), seeds=(0, 2))[0] == 0
    assert begun == ["a mnist/cnn 0 2", "b mnist/cnn 0 2"]


def test_seeds_that_another_process_holds_do_not_go_at_once_with_the_others(
    begun: list[str], asked: Asked, plans: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", "3")
    house, _ = open_house(plans[0])
    with sole(house.run_folder(house.cell("mnist", "cnn"), 1), print):
        asked(tasks=("mnist",), variants=("cnn",))
    assert begun == ["a mnist/cnn 0 2", "b mnist/cnn 0 1 2", "a mnist/cnn 1"]


def test_a_run_that_another_process_holds_is_left_to_it_while_there_are_others(
    begun: list[str], asked: Asked, plans: list[Path]
) -> None:
    house, _ = open_house(plans[0])
    with sole(house.run_folder(house.cell("mnist", "cnn"), 0), print):
        asked(tasks=("mnist",), variants=("cnn",))
    assert begun == [f"{plan} mnist/cnn {seed}" for plan, seed in ("a1", "a2", "b0", "b1", "b2", "a0")]


def test_what_is_worked_on_is_claimed_and_of_two_that_choose_at_once_one_chooses_again(
    begun: list[str], asked: Asked, plans: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    house, _ = open_house(plans[0])
    folder = house.run_folder(house.cell("mnist", "cnn"), 0)
    train, held, other = working.train_cells, [], ExitStack()

    def claims(*arguments: Any) -> None:
        held.append(is_held(arguments[1].run_folder(cell := arguments[3][0], cell.seeds[0])))
        train(*arguments)

    def late(place: Path) -> Any:
        if not held and place == folder:  # between the question whether it is free and the answer
            other.enter_context(claimed(folder))
        return claimed(place)

    monkeypatch.setattr(working, "train_cells", claims)
    monkeypatch.setattr(working, "claimed", late)
    with other:
        asked(tasks=("mnist",), variants=("cnn",))
    order = [f"{plan} mnist/cnn {seed}" for plan, seed in ("a1", "a2", "b0", "b1", "b2", "a0")]
    assert (begun, held, is_held(folder)) == (order, [True] * 6, False)


def test_seeds_of_which_another_process_claims_one_are_chosen_again_without_it(
    begun: list[str], asked: Asked, plans: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", "3")
    house, _ = open_house(plans[0])
    folder, other = house.run_folder(house.cell("mnist", "cnn"), 1), ExitStack()

    def late(place: Path) -> Any:
        if not begun and place == folder:  # between the question whether all three are free and the answer
            other.enter_context(claimed(folder))
        return claimed(place)

    monkeypatch.setattr(working, "claimed", late)
    with other:
        asked(tasks=("mnist",), variants=("cnn",))
    assert begun == ["a mnist/cnn 0 2", "b mnist/cnn 0 1 2", "a mnist/cnn 1"]


@pytest.fixture
def tuned(plans: list[Path], begun: list[str], monkeypatch: pytest.MonkeyPatch) -> list[tuple[House, DataSource]]:
    """The plans with the CNN tuned; its choice was made by trials of another source, and a stand-in tunes again."""
    for plan in plans:
        text = plan.read_text().replace("capsnet-r3-recon]}\n  multi", "capsnet-r3-recon], tuned: [cnn]}\n  multi")
        plan.write_text(text.replace("tasks:", "tuning: {steps: 2, seeds: [9]}\ntasks:"))
    opened = [open_house(plan) for plan in plans]
    for house, source in opened:
        chosen(house, source, house.cell("mnist", "cnn+tuned"), GRID[0], "of other trials")

    def tune(_: Console, house: House, source: DataSource, cells: list[Cell], *__: Any) -> None:
        begun.append(f"{house.name[0]} tunes {cells[0].label}")
        chosen(house, source, cells[0], GRID[1])

    monkeypatch.setattr(working, "tune_cells", tune)
    return opened


def test_a_row_whose_choice_is_of_other_trials_is_tuned_once_for_all_its_seeds(
    begun: list[str], asked: Asked, tuned: list[tuple[House, DataSource]]
) -> None:
    assert asked(variants=("cnn+tuned",))[0] == 0
    assert begun == [
        f"{plan} {words}"
        for plan in "ab"
        for words in ("tunes mnist/cnn+tuned", *(f"mnist/cnn+tuned {seed}" for seed in range(3)))
    ]


def test_a_row_that_another_process_tunes_is_left_to_it_while_there_are_others(
    begun: list[str], asked: Asked, tuned: list[tuple[House, DataSource]]
) -> None:
    row = tuned[0][0].cell("mnist", "cnn+tuned").tuned
    assert row is not None
    with sole(row.path.with_suffix(""), print):
        asked(variants=("cnn+tuned",), seeds=(0,))
    assert begun == [f"{plan} {words}" for plan in "ba" for words in ("tunes mnist/cnn+tuned", "mnist/cnn+tuned 0")]


def test_a_row_whose_tuning_fails_is_passed_over_with_all_its_seeds(
    begun: list[str], asked: Asked, tuned: list[tuple[House, DataSource]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        if (name := arguments[1].name) in begun:
            pytest.fail("it would be tried again and again")  # no Exception, which would be passed over
        begun.append(name)
        raise RuntimeError("in a trial")

    monkeypatch.setattr(working, "tune_cells", fails)
    left, said = asked(failed=6, variants=("cnn+tuned",))
    assert (left, begun) == (0, ["a-digits", "b-digits"])
    assert "mnist/cnn+tuned seed 0, 1, 2: could not be done: " in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"tasks": ("minst",)}, "b.yaml have no task 'minst'; did you mean 'mnist'?"),
        ({"variants": ("cnn", "capsnet-r3-recom")}, "no variant 'capsnet-r3-recom'; did you mean 'capsnet-r3-recon'?"),
        ({"seeds": (7,)}, "b.yaml: none of these rows has seed 7; the seeds are [0, 1, 2]."),
        (
            {"tasks": ("multimnist",), "variants": ("multimnist-cnn", "cnn")},
            "no variant 'cnn' of task multimnist; known: capsnet",
        ),
        ({"variants": ("cnn",), "seeds": (5,)}, "mnist/cnn has no seed 5; the seeds are [0, 1, 2]."),
    ],
)
def test_what_no_plan_has_is_a_sentence_before_any_work(
    begun: list[str],
    asked: Asked,
    plans: list[Path],
    results: Path,
    words: dict[str, tuple[object, ...]],
    expected: str,
) -> None:
    if "seeds" in words and "variants" in words:  # a variant of the one plan, a seed of the other
        text = plans[1].read_text().replace("[0, 1, 2]", "[5]").replace("variants: [cnn, ", "variants: [")
        plans[1].write_text(text)
    with pytest.raises(PlanError) as error:
        asked(**words)
    assert expected in str(error.value)
    assert begun == []
    assert not results.exists()


def test_a_run_that_is_known_not_to_fit_is_passed_over_and_the_next_begun(begun: list[str], asked: Asked) -> None:
    """Of each row the first seed is begun: nobody knows how long it takes. The others take 15 minutes, as it did."""
    left, said = asked(lent=14, tasks=("mnist",))
    assert begun == [f"{plan} mnist/{variant} 0" for plan in "ab" for variant in ("cnn", "capsnet-r3-recon")]
    assert left == 8
    assert (
        "mnist/cnn seed 1: not begun, since it would take 15.0 minutes, by its row's other seeds, and the machine is "
        "lent for only 1" in said
    )
    begun.clear()
    assert asked(lent=16, tasks=("mnist",), variants=("cnn",))[0] == 0
    assert len(begun) == 4


def test_how_long_a_run_takes_where_its_like_trained_at_once(plans: list[Path]) -> None:
    house, source = open_house(plans[0])
    cell = house.cell("mnist", "cnn")
    for seed in (1, 2):  # together in 400 seconds
        finished(house, source, cell, seed, 400, 10)
        path = house.run_folder(cell, seed) / "manifest.json"
        manifest = json.loads(path.read_text())
        write_json(path, {**manifest, "resolved": {"seeds_at_once": 2}})
    assert expected_seconds(house, source, cell, 0) == 1.5 * 200 + 10
    assert expected_seconds(house, source, cell, 0, at_once=2) == 420


def test_how_long_a_run_takes_is_what_its_like_took_here(plans: list[Path]) -> None:
    house, source = open_house(plans[0])
    cell = house.cell("mnist", "cnn")
    assert expected_seconds(house, source, cell, 0) is None
    finished(house, source, cell, 1, 100, 10)
    finished(house, source, cell, 2, 80, 20)
    assert expected_seconds(house, source, cell, 0) == 110
    assert expected_seconds(house, source, cell, 0, at_once=3) == 330
    assert expected_seconds(house, source, house.cell("mnist", "capsnet-r3-recon"), 0) is None
    (house.run_folder(cell, 0) / "checkpoint").mkdir(parents=True)
    assert expected_seconds(house, source, cell, 0) is None  # under way: it goes on
    (house.run_folder(cell, 0) / "checkpoint").rmdir()
    finished(house, source, cell, 0, 90, 30)
    (house.run_folder(cell, 0) / "test" / "metrics.json").unlink()
    assert expected_seconds(house, source, cell, 0) == 20  # trained already
    torn = house.run_folder(cell, 2) / "test" / "metrics.json"
    whole = torn.read_text()
    for text in (whole[:20], "[]", json.dumps({"weights": "a"})):
        torn.write_text(text)
        assert expected_seconds(house, source, cell, 0) == 10  # the other seed's
    torn.write_text(whole)
    for seed in (1, 2):
        path = house.run_folder(cell, seed) / "manifest.json"
        manifest = json.loads(path.read_text())
        write_json(path, {**manifest, "machine": {"processor": "another", "gpu": None}})
    assert expected_seconds(house, source, cell, 0) is None  # what another machine took says nothing of this one
