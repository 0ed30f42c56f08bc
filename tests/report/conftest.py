"""Toy results, written once and copied for every test that spoils or reports them."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
import toy
import toy_claims
from judging import CELLS, answer, errors, results_of
from places import made_once

from capsbench.report import Report, build_report
from capsbench.report.published import Published, load_published


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in which every run is done. Read only."""
    return toy.write_toy(tmp_path_factory.mktemp("healthy") / "toy")


@pytest.fixture
def folder(healthy: Path, tmp_path: Path) -> Path:
    """A copy of the healthy results to spoil."""
    return Path(shutil.copytree(healthy, tmp_path / "toy"))


@pytest.fixture(scope="session")
def mnist_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of MNIST and no other task, whose report is drawn in a fifth of the time. Read only."""
    return toy.write_toy(tmp_path_factory.mktemp("mnist") / "toy", tasks={"mnist": toy.TASKS["mnist"]})


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five seeds of two MNIST cells: the CNN errs on 4 %, CapsNet on 2 %. Read only."""
    folder = results_of(tmp_path_factory.mktemp("made") / "full", CELLS)
    answer(folder, "cnn", errors(0.04, stream=1))
    answer(folder, "capsnet-r3-recon", errors(0.02, stream=2))
    return folder


@pytest.fixture
def full(made: Path, tmp_path: Path) -> Path:
    """A copy of them to change."""
    return Path(shutil.copytree(made, tmp_path / "full"))


@pytest.fixture(scope="session")
def published() -> Published:
    return load_published()


@pytest.fixture(scope="session")
def spoiled(healthy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """Results with one of each trouble, reported once for all workers, which takes its seconds. Read only."""

    def make(folder: Path) -> None:
        report = spoil(Path(shutil.copytree(healthy, folder / "toy")))
        (folder / "report.pickle").write_bytes(pickle.dumps(report))

    folder = made_once(tmp_path_factory, "spoiled", make)
    return folder / "toy", pickle.loads((folder / "report.pickle").read_bytes())


def spoil(path: Path) -> Report:
    toy.fail(path, "mnist", "capsnet-r3", 1, "the loss was nan at step 40 <script>alert('x')</script> & 5 %")
    for seed in (0, 1, 2):
        toy.fail(path, "two_digit", "two-digit-uniform", seed)
    toy.unmatch(path, "cnn-valid", 2)
    toy.truncate(toy.run_folder(path, "mnist", "capsnet-r1", 2) / "test" / "metrics.json")
    toy.copy_run(path, "mnist", "cnn", 0, 7, claim=True)
    shutil.rmtree(toy.run_folder(path, "multimnist", "capsnet-r1-recon", 1))
    return build_report(path)


@pytest.fixture(scope="session")
def judged_page(spoiled: tuple[Path, Report], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the spoiled results with six claims judged. Read only."""
    path = Path(shutil.copytree(spoiled[0], tmp_path_factory.mktemp("judged") / "toy"))
    return toy_claims.write_page(path, path / "report.html")
