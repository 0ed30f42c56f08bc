"""A user's environment does not reach the tests, but for where data lie and what must be there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from surroundings import GIT, clear


def test_what_would_alter_results_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = {"PATH": "/bin", "CAPSBENCH_REQUIRE_TOOLS": "1", "CAPSBENCH_DATA": "data", "CAPSBENCH_CACHE": ""}
    altering = ("CAPSBENCH_RESULTS", "CAPSBENCH_DEVICE", "SNAKEMAKE_PROFILE", "GITHUB_ACTIONS", "COLUMNS", "GIT_DIR")
    altering += ("PYTHONDONTWRITEBYTECODE",)
    environment = {**kept, **dict.fromkeys(altering, "x")}
    clear(environment)
    left = {name: value for name, value in environment.items() if not name.startswith("GIT_CONFIG_")}
    assert left == {**kept, "CAPSBENCH_DATA": str(tmp_path / "data")}


def test_of_the_user_s_git_only_what_hinders_a_commit_is_set_aside(tmp_path: Path) -> None:
    hook = tmp_path / "hooks" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    user = tmp_path / "gitconfig"
    user.write_text(f"[commit]\ngpgSign = true\n[gpg]\nprogram = false\n[core]\nhooksPath = {hook.parent}\n")
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": str(user),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "of the user",
        "GIT_INDEX_FILE": str(tmp_path / "nowhere" / "index"),
    }
    commit = ["git", "-c", "user.email=test@localhost", "commit", "-q", "--allow-empty", "-m", "None"]

    def git(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert git("git", "init", "-q").returncode == 0
    assert git(*commit).returncode != 0  # such a configuration does hinder
    clear(environment)
    assert environment["GIT_CONFIG_COUNT"] == str(1 + len(GIT))
    said = git(*commit)
    assert said.returncode == 0, said.stderr
    assert git("git", "log", "-1", "--format=%an").stdout == "of the user\n"
