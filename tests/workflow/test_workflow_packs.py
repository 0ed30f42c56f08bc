"""Packs of a clone, unpacked and at work as on a machine without a network: of this Python, on its CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest
from places import PATIENCE, Place, copy_source
from tools import mnist_folder

from capsbench.cli.pack_packages import missing_packages
from capsbench.files import write_text

GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]


def packed(tmp_path: Path) -> tuple[Place, list[object]]:
    """A clone of its own with a plan of two runs, packed into pack.tar.gz, and the command that did."""
    clone = copy_source(tmp_path / "clone")
    for name in ("requirements.lock", ".gitignore"):  # the latter, since Python keeps there what it compiles
        shutil.copy(Path(__file__).resolve().parents[2] / name, clone)
    place = Place(clone, clone, {"CAPSBENCH_DATA": mnist_folder()})
    plan = place.plan(variants="[cnn]", seeds=[0, 1], uci_digits="false").read_text().replace("name: tiny\n", "")
    write_text(clone / "results" / "mine.yaml", plan)
    write_text(clone / "own.yaml", plan.replace("[cnn]", "[my_routing:cosine]"))
    for words in (["init", "-q"], ["add", "-A"], ["add", "-f", "results"], ["commit", "-qm", "All"]):
        subprocess.run([*GIT, *words], cwd=clone, check=True)
    (tmp_path / "have.txt").write_text("\n".join(f"{name}=={version(name)}" for name in missing_packages({}, "3.12")))
    command = ["pack", "tiny.yaml", "--to", tmp_path / "pack.tar.gz", "--have", tmp_path / "have.txt"]
    said = place.capsbench(*command)
    assert said.code == 0, said.text
    assert "packages: none" in said.out
    return place, command


@pytest.mark.slow
def test_a_pack_is_of_a_clean_commit_that_its_results_name(tmp_path: Path) -> None:
    place, command = packed(tmp_path)
    clone = place.folder
    shutil.copy(Path(__file__).resolve().parents[2] / "examples" / "custom_routing" / "my_routing.py", clone)
    (clone / "mine.yaml").write_text((clone / "tiny.yaml").read_text().replace("name: tiny\n", ""))
    write_text(clone / "folder" / "tiny.yaml", (clone / "tiny.yaml").read_text().replace("steps: 4", "steps: 5"))
    for words, sentence in {
        ("mine.yaml",): "mine.yaml is not in this clone's commit",
        ("results/mine.yaml",): "results/mine.yaml is not in this clone's commit, which is what is packed (without",
        ("own.yaml",): "my_routing.py is not in this clone's commit",
        ("tiny.yaml", "config/smoke.yaml", "folder/tiny.yaml"): "are both called tiny, so both would",
        ("config/kmnist.yaml",): "config/kmnist.yaml uses kmnist; the archive can contain only MNIST",
        ("tiny.yaml", "--results", "scratch"): "--results packs only a folder of results",
    }.items():
        said = place.capsbench("pack", *words)
        assert said.code == 2
        assert sentence in said.err
    assert not list(clone.glob("*.tar.*"))

    (clone / "capsbench" / "errors.py").open("a").write("# edited\n")
    said = place.capsbench(*command)
    assert said.code == 2
    assert "Only a clean commit is packed" in said.err

    with tarfile.open(tmp_path / "pack.tar.gz") as stored:
        known = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.3 and earlier have none
        stored.extractall(tmp_path, **known)
        assert not [name for name in stored.getnames() if "/results/" in name]
    there = tmp_path / "capsbench-pack"
    script = (there / "run.sh").read_text()
    assert "capsbench work tiny.yaml --minutes" in script
    manifest = there / "scratch/tiny/runs/mnist/cnn/seed-0/manifest.json"
    for dirty in (False, True):
        if dirty:
            (there / "capsbench" / "errors.py").open("a").write("# edited\n")
            manifest.unlink()
        elsewhere = Place(there, there, {"CAPSBENCH_DATA": str(there / "data")})
        said = elsewhere.capsbench("work", "tiny.yaml", "--seed", 0)
        assert said.code == 0, said.text
        head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=clone, capture_output=True, text=True, check=True)
        assert json.loads(manifest.read_text())["git"] == {"commit": head.stdout.strip(), "dirty": dirty}

    out = tmp_path / "out"
    out.mkdir()
    environment = {**os.environ, "PYTHON": sys.executable, "HOME": str(there), "CAPSBENCH_RESULTS": "~/scratch"}
    # nothing is left to do; time is up before anything
    for minutes, seed, code, to in (("5", "0", 0, "out"), ("0", "1", 4, str(out))):
        said = subprocess.run(
            [there / "run.sh", minutes, "--variant", "cnn", "--seed", seed],
            env={**environment, "OUT": to}, capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert said.returncode == code, said.stderr
        with tarfile.open(out / "tiny.tar.gz") as stored:
            assert "tiny/runs/mnist/cnn/seed-0/manifest.json" in stored.getnames()
        (out / "tiny.tar.gz").unlink()
    nowhere = {**environment, "OUT": "/proc/none"}
    said = subprocess.run([there / "run.sh", "5", "--seed", "0"], env=nowhere, capture_output=True, check=False)
    assert said.returncode == 1  # the work is done, and the archive of it could not be made
    (there / "run.sh").write_text((there / "run.sh").read_text().replace("tiny.yaml", "nowhere.yaml"))
    assert subprocess.run(["sh", there / "run.sh"], env=environment, capture_output=True, check=False).returncode == 2
    assert list(out.iterdir()) == []  # without OUT nothing is packed


def test_what_a_begin_that_was_cut_off_unpacked_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    (gpu := tmp_path / ".gpu").mkdir()
    there = {"capsbench-pack": tmp_path / "loan" / "capsbench-pack", "triton": tmp_path / "triton"}
    for name in there:
        (source := tmp_path / "source" / name).mkdir(parents=True)
        for file in ("first", "last"):
            (source / file).write_bytes(os.urandom(100_000))  # which gzip makes no smaller
        with tarfile.open(gpu / f"{name}.tar.gz", "w:gz") as stored:
            stored.add(source, name)
    places = {"LOAN": str(tmp_path / "loan"), "LOAN_TRITON": str(there["triton"]), "OUT": str(tmp_path)}
    script = Path(__file__).resolve().parents[2] / "profiles" / "gpu" / "loan.sh"

    def told(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", script, *words], env={**os.environ, **places}, cwd=tmp_path, capture_output=True, text=True,
            check=False, timeout=PATIENCE,
        )  # fmt: skip

    for name, folder in there.items():
        content = (gpu / f"{name}.tar.gz").read_bytes()
        (gpu / f"{name}.tar.gz").write_bytes(content[: len(content) * 3 // 4])  # one file is whole
        said = told("begin")
        assert said.returncode == 2
        assert f"loan.sh: .gpu/{name}.tar.gz cannot be unpacked; carry it here again" in said.stderr
        assert not folder.exists()
        (gpu / f"{name}.tar.gz").write_bytes(content)
    assert told("begin").returncode == 0  # no row, so that nothing trains
    assert "all rows are done" in told("wait", "60").stdout
    subprocess.run(["flock", tmp_path / "loan" / "lock", "true"], check=True)  # the process in the background has ended
    for name, folder in there.items():
        source = tmp_path / "source" / name
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            path.name: path.read_bytes() for path in source.iterdir()
        }
        assert not folder.with_name(f"{name}.part").exists()


@pytest.mark.slow
def test_rows_go_on_between_the_commands_to_a_lent_machine_and_come_back_with_each(tmp_path: Path) -> None:
    place, _ = packed(tmp_path)
    (tmp_path / ".gpu").mkdir()
    (tmp_path / "pack.tar.gz").rename(tmp_path / ".gpu" / "capsbench-pack.tar.gz")
    out = tmp_path / "out"
    out.mkdir()
    places = {"LOAN": str(tmp_path / "loan"), "OUT": str(out), "CAPSBENCH_RESULTS": "scratch"}
    loan = ["bash", str(place.clone / "profiles" / "gpu" / "loan.sh")]

    def told(*words: str, script: list[str] = loan) -> str:
        said = subprocess.run(
            [*script, *words], env={**os.environ, "PYTHON": sys.executable, **places}, capture_output=True, text=True,
            check=True, cwd=tmp_path, timeout=PATIENCE,
        )  # fmt: skip
        return said.stdout

    assert told("begin", "tiny.yaml:mnist:cnn:1", "tiny.yaml:mnist:nothing", "tiny.yaml:mnist:cnn") == ""
    assert "still at work" in told("wait", "1")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        told("begin", "tiny.yaml:mnist:cnn")
    assert "rows are still at work; say wait first" in refused.value.stderr
    said_last = told("wait", "1000")
    assert "all rows are done" in said_last
    assert [line.rsplit(",", 1)[0] for line in said_last.splitlines() if line.startswith("==")] == [
        "== tiny.yaml:mnist:cnn:1: exit code 0",
        "== tiny.yaml:mnist:nothing: exit code 2",
        "== tiny.yaml:mnist:cnn: exit code 0",
    ]
    with tarfile.open(out / "tiny.tar.gz") as stored:
        for seed in (0, 1):
            assert f"tiny/runs/mnist/cnn/seed-{seed}/manifest.json" in stored.getnames()
    assert "has no variant 'nothing' of task mnist; known: cnn" in (out / "log").read_text()
    copied = ["bash", str(tmp_path / "loan" / "loan.sh")]  # a later command that carries nothing has only this
    assert told("begin", "tiny.yaml:mnist:nothing", script=copied) == ""
    assert "all rows are done" in told("wait", "1000", script=copied)
