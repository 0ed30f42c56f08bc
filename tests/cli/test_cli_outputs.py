"""Where `--to` and `--json` write, and where not: no device or pipe becomes a file, no link is lost, no run is hurt."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from places import REPOSITORY, Place
from rich.console import Console

from capsbench.cli.options import file_to_write, is_archive, is_json, is_weights
from capsbench.cli.pack_results import pack_results
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.files import write_json


def refused(path: Path) -> str:
    with pytest.raises(CapsbenchError) as error:
        file_to_write("--to", path, "mine.tar.gz", is_archive)
    return str(error.value)


def test_a_folder_a_device_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    assert refused(tmp_path) == f"--to is {tmp_path}, a folder; name the file, such as {tmp_path / 'mine.tar.gz'}."
    for path in (Path("/dev/null"), tmp_path / "pipe", tmp_path / "link"):
        assert refused(path) == (
            f"--to is {path}, which is no file and would be replaced by one; name a file, such as mine.tar.gz."
        )


def test_a_file_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("budget: reduced\n")
    (tmp_path / "link").symlink_to("plan.yaml")
    for path in (tmp_path / "plan.yaml", tmp_path / "link"):
        assert refused(path) == (
            f"--to is {path}, a file of another kind that would be replaced; name another, such as mine.tar.gz."
        )
    kinds = {
        "a.tar.gz": (gzip.compress(b""), is_archive),
        "w.safetensors": (safetensors.torch.save({"w": torch.zeros(1)}), is_weights),
        "b.json": (b'{"rows": []}', is_json),
        "empty": (b"", is_archive),
    }
    for name, (content, is_kind) in kinds.items():
        (tmp_path / name).write_bytes(content)
        assert file_to_write("--to", tmp_path / name, name, is_kind) == tmp_path / name
        if content:
            others = [other for _, other in kinds.values() if other is not is_kind]
            assert not any(other(content[:16]) for other in others)


def test_in_a_run_s_folder_nothing_is_written(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mnist" / "cnn" / "seed-0"
    write_json(run / "manifest.json", {})
    (tmp_path / "link").symlink_to(run / "weights.safetensors")
    for path in (run / "weights.safetensors", tmp_path / "link"):
        assert refused(path) == (
            f"--to is {run / 'weights.safetensors'}, inside a run's folder, whose files are its own; name a file "
            "elsewhere, such as mine.tar.gz."
        )


@pytest.mark.parametrize("name", ["/proc/mine.tar.gz", "/proc/none/mine.tar.gz", "/etc/hostname/mine.tar.gz"])
def test_where_no_file_can_be_made_that_is_said_before_there_is_anything_to_write(name: str) -> None:
    with pytest.raises(ResourceError, match=rf"{name} cannot be made \(.+\); name another file with --to\."):
        file_to_write("--to", Path(name), "mine.tar.gz", is_archive)


def test_asking_whether_a_file_can_be_made_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "deep" / "folders" / "mine.tar.gz", Path("mine.tar.gz"), Path("deep/mine.tar.gz")):
        assert file_to_write("--to", name, "mine.tar.gz", is_archive) == name
    assert not [*tmp_path.iterdir()]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_json(results / "plan.json", {"name": "results"})
    there = tmp_path / "elsewhere.tar.gz"
    there.write_bytes(gzip.compress(b"an earlier one"))
    link = tmp_path / "link.tar.gz"
    link.symlink_to(there.name)
    pack_results(Console(quiet=True), results, link)
    assert link.is_symlink()
    assert there.read_bytes().startswith(b"\x1f\x8b")
    there.unlink()  # a link to nowhere is a file that is still to be made
    pack_results(Console(quiet=True), results, link)
    assert there.is_file()


def test_a_place_for_figures_is_tried_before_anything_is_timed(tmp_path: Path) -> None:
    said = Place(tmp_path, REPOSITORY).capsbench("bench", "--figures", "/proc/x")
    assert said.code == 4
    assert said.err.startswith("capsbench: /proc/x/roofline.png cannot be written to (")
    assert said.err.endswith("); make room there, or name another folder with --figures.\n")
