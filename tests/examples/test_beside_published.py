"""A plan of examples/custom_routing: a row of one's own beside published runs, which nobody trains again."""

from __future__ import annotations

from pathlib import Path

from places import REPOSITORY
from rich.console import Console

from capsbench.cli.bring import bring
from capsbench.files import read_json
from capsbench.plan import House

EXAMPLE = REPOSITORY / "examples" / "custom_routing"
PLAN = EXAMPLE / "beside-published.yaml"
MINE = {"mnist/my_routing.cosine", "two_digit/two-digit-cosine"}


def test_all_runs_but_those_of_the_own_routing_are_brought_from_the_paper_s_plan(
    results: Path, no_data: object
) -> None:
    console = Console(record=True, width=300)
    bring(console, [REPOSITORY / "results" / "paper"], PLAN)
    house = House.load(PLAN)
    published = {f"{cell.label}/seed-{seed}" for cell in house.cells for seed in cell.seeds if cell.label not in MINE}
    assert {cell.label for cell in house.cells} >= MINE
    manifests = list(house.folder.rglob("manifest.json"))
    assert {path.parent.relative_to(house.folder / "runs").as_posix() for path in manifests} == published
    assert all(read_json(path)["status"] == "done" for path in manifests)
    said = f"{len(published)} runs: brought"
    assert said in console.export_text()
    assert f"results/paper: {said}\n" in (EXAMPLE / "README.md").read_text()


def test_the_published_rows_took_the_minutes_that_the_example_says() -> None:
    rows = ("two-digit-uniform", "two-digit-kmeans")
    runs = REPOSITORY / "results" / "paper" / "runs" / "two_digit"
    minutes = [read_json(path)["seconds"] / 60 for row in rows for path in (runs / row).glob("*/manifest.json")]
    said = f"{min(minutes):.0f} to {max(minutes):.0f} minutes"
    assert f"[{said}](" in " ".join((EXAMPLE / "README.md").read_text().split())
    assert f"took {said} each" in PLAN.read_text()


def test_the_own_row_trains_as_the_published_ones_do() -> None:
    house = House.load(PLAN)
    for task in ("mnist", "two_digit"):
        mine, *others = sorted(
            (cell for cell in house.cells if cell.task == task), key=lambda cell: cell.label not in MINE
        )
        assert len(others) == 2
        for other in others:
            assert (mine.training, mine.options, mine.seeds) == (other.training, other.options, other.seeds)
