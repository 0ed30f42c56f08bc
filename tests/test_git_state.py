"""Whether a clone, or what was packed of one, is called dirty: by its source and plans, not by results in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from capsbench import provenance
from capsbench.files import write_json, write_text

FILES = ("capsbench/provenance.py", "config/paper.yaml", "results/paper/report.html")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as committed")
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "capsbench")
    return tmp_path


@pytest.mark.parametrize(("name", "dirty"), [(None, False), *zip(FILES, (True, True, False), strict=True)])
def test_a_clone_is_dirty_by_its_source(clone: Path, name: str | None, dirty: bool) -> None:
    if name is not None:
        (clone / name).write_text("changed")
    (clone / "notes.txt").write_text("no part of the repository")
    state = provenance.git_state.__wrapped__()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, capture_output=True, text=True, check=True)
    assert state == {"commit": head.stdout.strip(), "dirty": dirty}


def test_a_clone_that_belongs_to_somebody_else_has_its_commit(
    clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that a group shares on a cluster. A repository around the package that is not its clone stays refused."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own mock of another owner
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (clone / "config" / "paper.yaml").write_text("changed")
    state = provenance.git_state.__wrapped__()
    assert state["commit"] is not None
    assert state["dirty"] is True
    deeper = clone / "capsbench" / "deeper"
    deeper.mkdir()
    monkeypatch.setattr(provenance, "PACKAGE", deeper)
    assert provenance.git_state.__wrapped__()["commit"] is None


def test_a_file_of_the_package_that_git_does_not_know_makes_it_dirty(clone: Path) -> None:
    (clone / "config" / "mine.yaml").write_text("a plan: its runs' manifests hold what it says")
    assert provenance.git_state.__wrapped__()["dirty"] is False
    (clone / "capsbench" / "mine.py").write_text("X = 1")
    assert provenance.git_state.__wrapped__()["dirty"] is True


def test_a_repository_that_has_the_package_only_in_an_ignored_folder_is_another_one(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where somebody's project has it in an environment: that project's commit says nothing of it."""
    package = clone / ".venv" / "capsbench"
    package.mkdir(parents=True)
    (package / "provenance.py").write_text("as installed")
    (clone / ".git" / "info" / "exclude").write_text(".venv\n")
    monkeypatch.setattr(provenance, "PACKAGE", package)
    assert provenance.git_state.__wrapped__() == {"commit": None, "dirty": None}


def test_outside_a_repository_neither_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git_state.__wrapped__() == {"commit": None, "dirty": None}


@pytest.mark.parametrize("word", ["status", "--untracked-files=no", "--untracked-files=all"])
def test_a_git_that_does_not_answer_in_time_is_not_a_clean_one(
    clone: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    def hangs(command, **words):
        if word in command:
            raise subprocess.TimeoutExpired(command, 20)
        return run(command, **words)

    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", hangs)
    state = provenance.git_state.__wrapped__()
    assert state["commit"] is not None
    assert state["dirty"] is None


@pytest.mark.parametrize("name", ["capsbench/errors.py", "capsbench/routing/mine.py", "config/paper.yaml"])
def test_a_packed_commit_is_dirty_by_a_file_that_is_changed_added_or_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    is_added = path.name == "mine.py"
    for file in ("capsbench/errors.py", "config/paper.yaml"):
        write_text(tmp_path / file, "as packed")
    write_json(tmp_path / "PACKED.json", {"commit": "c", "files": provenance.tree(tmp_path)})
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "capsbench")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git_state.__wrapped__() == {"commit": "c", "dirty": False}
    write_text(path, "edited there")
    assert provenance.git_state.__wrapped__() == {"commit": "c", "dirty": True}
    path.unlink()
    assert provenance.git_state.__wrapped__() == {"commit": "c", "dirty": not is_added}
