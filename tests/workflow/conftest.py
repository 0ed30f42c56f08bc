"""A copy of the source, an empty place, and one finished run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from places import Finished, Place, Said, copy_source, made_once


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "clone", copy_source)


@pytest.fixture
def place(tmp_path: Path, clone: Path) -> Place:
    """An empty working directory."""
    (tmp_path / "work").mkdir()
    return Place(tmp_path / "work", clone)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, clone: Path) -> Finished:
    """The tiny plan from nothing to its report; made once, copied by whoever needs it."""

    def make(folder: Path) -> None:
        folder.mkdir()
        place = Place(folder, clone)
        place.plan()
        said = place.snakemake("--configfile", "tiny.yaml", CAPSBENCH_STAND_IN="")
        assert said.code == 0, said.text
        (folder / "said.json").write_text(json.dumps([said.code, said.out, said.err]))

    folder = made_once(tmp_path_factory, "finished", make)
    return Finished(Place(folder, clone), Said(*json.loads((folder / "said.json").read_text())))


@pytest.fixture
def done(finished: Finished, tmp_path: Path) -> Place:
    """A copy of the finished run, with Snakemake's records: the same folder a moment later."""
    return finished.copy(tmp_path / "again")
