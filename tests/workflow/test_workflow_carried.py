"""Results that were made elsewhere count: no modification time and no record of Snakemake decides what is done."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from places import copy_source


def without_times(folder: Path) -> None:
    """What `cp -r` leaves: everything is as old as the copy."""
    for path in folder.rglob("*"):
        os.utime(path)


def shuffled_times(folder: Path) -> None:
    """What a cloud drive or a clone may leave: times in no order, some of them in the future of others."""
    draw = random.Random(3)
    for path in folder.rglob("*"):
        moment = draw.uniform(1_500_000_000, 1_700_000_000)
        os.utime(path, (moment, moment))


def only_what_is_committed(folder: Path) -> None:
    """What a clone holds: manifests, metrics and predictions, no weights, nothing of the pipeline's own."""
    shutil.rmtree(folder / "cells")
    shutil.rmtree(folder / "logs")
    (folder / "report.html").unlink()
    for path in folder.rglob("weights.safetensors"):
        path.unlink()
    shuffled_times(folder)


@pytest.mark.slow
@pytest.mark.parametrize("happened", [shuffled_times, without_times, only_what_is_committed])
def test_carried_results_are_not_made_again(finished, tmp_path, happened) -> None:
    place = finished.copy(
        tmp_path / "elsewhere", copy_source(tmp_path / "clone", finished.place.clone), snakemake=False
    )
    happened(place.results)
    before = place.manifests()
    metrics = {path: path.read_bytes() for path in place.results.rglob("metrics.json")}
    (place.results / "report.html").unlink(missing_ok=True)
    said = place.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    assert place.manifests() == before
    assert {path: path.read_bytes() for path in place.results.rglob("metrics.json")} == metrics
    assert "after 4 steps" not in said.text
    assert (place.results / "report.html").stat().st_size > 10_000
    assert place.would_run() == set()
