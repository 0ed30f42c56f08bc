"""Disks that are full or read-only, data that change: a sentence, nothing half-written, and it goes on afterwards."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import Place, Said, refused
from test_workflow_faults import outcome
from tools import mnist_folder, unavailable

from capsbench.locks import DRAWING, LOCK, READING
from capsbench.pipeline.house import PLACE
from capsbench.training.checkpoint import read_tensors

LOCKS = (LOCK, READING, DRAWING)
MEGABYTES = 32  # of the disk: the tiny plan's results need less than half of it
CAPSULES = ["--variant", "capsnet-r3-recon"]


@pytest.fixture
def disk(place: Place) -> Iterator[Path]:
    """A small disk of its own under the results."""
    if os.geteuid() != 0:
        unavailable("only root can mount a disk")
    place.root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(place.root)]
    said = subprocess.run(mount, capture_output=True, text=True, check=False)
    if said.returncode:
        unavailable(f"no disk can be mounted here: {said.stderr.strip()}")
    yield place.root
    subprocess.run(["umount", "--lazy", str(place.root)], check=True)


def fill(disk: Path, free: int) -> Path:
    """Fill a disk but for `free` bytes; the file that does it."""
    filler = disk / "filler"
    with filler.open("wb") as stream:
        stream.write(b"\0" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - free))
    return filler


def refused_for_want_of_room(said: Said) -> None:
    refused(said, "No space left on device")
    assert said.code == 4, said.text


def nothing_is_half_written(folder: Path) -> None:
    for path in folder.rglob("*"):
        # the names of files that are not whole yet; a lock has nothing in it, and PLACE is read below
        is_lock = path.name in LOCKS and path.stat().st_size == 0
        assert not path.name.startswith(".") or path.name == PLACE or is_lock, path
        if path.suffix == ".json" or path.name == PLACE:
            json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            read_tensors(path)


@pytest.mark.slow
def test_a_disk_that_fills_up_is_a_sentence_and_with_room_it_goes_on(place, disk, finished) -> None:
    place.plan()
    expected = {key: value for key, value in outcome(finished.place).items() if "capsnet" in key}
    weights = {key: value for key, value in expected.items() if key.endswith(".safetensors")}
    often = {"CAPSBENCH_CHECKPOINT_SECONDS": "0"}
    for free in (0, 100_000, 800_000):
        shutil.rmtree(place.results, ignore_errors=True)
        filler = fill(disk, free)
        said = place.capsbench("train", "tiny.yaml", *CAPSULES, **often)
        refused_for_want_of_room(said)
        assert said.err.count("\n") == 1
        assert str(disk) in said.err
        nothing_is_half_written(disk)
        filler.unlink()
        assert place.capsbench("train", "tiny.yaml", *CAPSULES).code == 0
        assert outcome(place) == weights
    filler = fill(disk, 10_000)
    refused_for_want_of_room(place.capsbench("evaluate", "tiny.yaml", *CAPSULES))
    nothing_is_half_written(disk)
    filler.unlink()
    assert place.capsbench("evaluate", "tiny.yaml", *CAPSULES).code == 0
    assert outcome(place) == expected


def test_a_full_folder_of_temporary_files_is_said_before_snakemake_starts(place, disk, finished, tmp_path) -> None:
    """Its scheduler's solver would end in a traceback. A folder that is not there it does without."""
    place.plan()
    fill(disk, 500_000)
    elsewhere = {"CAPSBENCH_RESULTS": str(tmp_path / "elsewhere")}
    for variable in ({"TMPDIR": str(disk), "TMP": str(disk)}, {"TMPDIR": str(tmp_path), "TMP": str(disk)}):
        said = place.capsbench("run", "tiny.yaml", **elsewhere, **variable)
        refused(said, f"{disk} has no room for the temporary files", "No space left on device", "TMPDIR")
        assert (said.code, said.err.count("\n"), said.jobs) == (4, 1, set())
    done = finished.copy(tmp_path / "done")
    said = done.capsbench("run", "tiny.yaml", TMP=str(tmp_path / "nowhere"), TMPDIR=str(disk))
    assert said.code == 3, said.text  # one row diverges
    assert "Nothing to be done" in said.text


@pytest.mark.slow
def test_through_snakemake_a_full_disk_is_said_and_with_room_it_goes_on(place, disk, finished) -> None:
    place.plan()
    filler = fill(disk, 200_000)
    said = place.capsbench("run", "tiny.yaml", CAPSBENCH_CHECKPOINT_SECONDS="0")
    refused_for_want_of_room(said)
    assert "the same command goes on" in said.err
    nothing_is_half_written(disk)
    filler.unlink()
    said = place.capsbench("run", "tiny.yaml")
    assert said.code == 3, said.text  # of the run that diverges
    assert outcome(place) == outcome(finished.place)


@pytest.mark.slow
def test_read_only_results_can_be_looked_at_and_what_is_missing_is_a_sentence(place, disk, finished) -> None:
    shutil.copytree(finished.place.results, place.results)
    shutil.copytree(finished.place.folder / ".snakemake", place.folder / ".snakemake")
    place.plan()
    manifest = place.results / "runs/mnist/cnn/seed-0/manifest.json"
    again = place.capsbench("run", "tiny.yaml")  # paths are others here: the report is drawn once more
    assert again.code == 3, again.text
    for missing in (False, True):
        if missing:
            manifest.unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        said = place.capsbench("run", "tiny.yaml")
        assert "Traceback" not in said.text
        if missing:
            assert said.code == 4
            assert "Read-only file system" in said.text
            trained = place.capsbench("train", "tiny.yaml")
            assert trained.code == 4
            assert "Read-only file system" in trained.err
            assert "Traceback" not in trained.text
        else:
            assert said.code == 3, said.text  # of the run that diverges
            assert "Nothing to be done" in said.text
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert place.capsbench("run", "tiny.yaml").code == 3
    assert outcome(place) == outcome(finished.place)


@pytest.mark.slow
def test_data_that_are_altered_after_the_first_run_stop_the_next_one(place) -> None:
    images = next(Path(mnist_folder()).rglob("train-images-idx3-ubyte*"))
    data = place.folder / "data"
    shutil.copytree(images.parent, data)
    place.plan(variants="[cnn]", uci_digits="false")
    said = place.capsbench("run", "tiny.yaml", CAPSBENCH_DATA=str(data))
    assert said.code == 0, said.text
    before = {path: path.read_bytes() for path in (place.root / "tiny").rglob("*") if path.is_file()}
    altered = data / images.name
    content = bytearray(gzip.decompress(altered.read_bytes()) if altered.suffix == ".gz" else altered.read_bytes())
    content[-1] ^= 1
    altered.write_bytes(gzip.compress(content) if altered.suffix == ".gz" else content)
    for command in (["run", "tiny.yaml"], ["data", "tiny.yaml"], ["verify", place.root / "tiny", "--random"]):
        said = place.capsbench(*command, CAPSBENCH_DATA=str(data))
        assert said.code == 2, said.text
        assert f"{altered} is altered: its SHA-256 is" in said.err
        assert "Traceback" not in said.text
    assert {path: path.read_bytes() for path in (place.root / "tiny").rglob("*") if path.is_file()} == before


def test_a_disk_that_is_too_full_for_brought_runs_is_named(place, disk, finished) -> None:
    """From a folder and from an archive; what is named is what has no room, and what was there is as it was."""
    place.plan()
    archive = place.folder / "runs.tar.gz"
    assert finished.place.capsbench("pack", "--results", finished.place.results, "--to", archive).code == 0
    filler = fill(disk, 40_000)
    for source in (finished.place.results, archive):
        said = place.capsbench("bring", source, "--plan", "tiny.yaml")
        refused_for_want_of_room(said)
        assert f"{disk}/" in said.err
        nothing_is_half_written(disk)
    filler.unlink()
    shutil.rmtree(place.results)
    filler = fill(disk, 40_000)  # with none Python itself takes another folder for TMPDIR
    elsewhere = {"CAPSBENCH_RESULTS": str(place.folder / "elsewhere"), "TMPDIR": str(disk)}
    said = place.capsbench("bring", archive, "--plan", "tiny.yaml", **elsewhere)
    refused_for_want_of_room(said)
    assert f"{disk} has no room to unpack {archive}" in said.err
    filler.unlink()
    assert place.capsbench("bring", archive, "--plan", "tiny.yaml").code == 0
