"""By the digest of its numbers a report is known to show those that are there: no file that it reads is forgotten."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
import toy

from capsbench.pipeline import numbers_digest
from capsbench.pipeline.state import drawn_from
from capsbench.plan.claims import load_claims
from capsbench.report.collect import collect
from capsbench.report.extras import extra_tables
from capsbench.report.figures import NotDrawnError, figures
from capsbench.report.figures.style import house_style
from capsbench.report.verdicts import judge

OF_A_RUN = ("manifest.json", "history.csv", "test/metrics.json", "test/predictions.npz", "routing/iterations.csv")


@pytest.mark.parametrize("file", ["cost.json", *(f"runs/mnist/capsnet-r3/seed-0/{name}" for name in OF_A_RUN)])
def test_a_file_that_changes_changes_the_digest_of_the_numbers(tmp_path: Path, file: str) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["capsnet-r3"]})
    before = numbers_digest(folder)
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])  # damage that leaves the size
    assert numbers_digest(folder) != before
    (folder / file).write_bytes(whole)  # at another time
    assert numbers_digest(folder) == before
    (folder / file).unlink()
    assert numbers_digest(folder) != before


def test_a_run_that_lies_elsewhere_changes_the_digest_of_the_numbers(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["cnn"]})
    before = numbers_digest(folder)
    run = toy.run_folder(folder, "mnist", "cnn", 0)
    run.rename(run.with_name("seed-1"))
    assert numbers_digest(folder) != before


def test_a_file_that_no_report_reads_changes_no_numbers(tmp_path: Path) -> None:
    folder = toy.write_toy(tmp_path / "one", seeds=(0,), tasks={"mnist": ["cnn"]})
    before = numbers_digest(folder)
    toy.change_json(folder / "plan.json", about="What is no number.")
    run = toy.run_folder(folder, "mnist", "cnn", 0)
    (run / "checkpoint" / "evaluation").mkdir(parents=True)
    for name in ("weights.safetensors", "test/scores.npz", "checkpoint/000000001.npz", "checkpoint/evaluation/1.npz"):
        (run / name).write_bytes(b"not in the report")
    assert numbers_digest(folder) == before


OPENED: set[Path] | None = None  # while it is a set: the files that are opened


def note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and OPENED is not None and isinstance(arguments[0], str | Path):
        OPENED.add(Path(arguments[0]))


def test_every_file_that_a_report_reads_is_among_its_numbers(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.addaudithook(note)  # which stays until the process ends
    monkeypatch.setattr(sys.modules[__name__], "OPENED", set())
    results = collect(healthy)
    results.judged = judge(results, load_claims())
    extra_tables(results)
    for draw in figures().values():
        with contextlib.suppress(NotDrawnError), house_style():
            draw(results)
    assert OPENED is not None
    read = {path for path in OPENED if path.is_relative_to(healthy)} - {healthy / "plan.json"}
    assert len({path.name for path in read}) > 10  # of each kind
    assert read - set(drawn_from(healthy)) == set()
