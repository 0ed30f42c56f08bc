"""What of its user's environment a test run keeps: where data lie, what must be there; nothing that alters results."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

FOLDERS = ("CAPSBENCH_DATA", "CAPSBENCH_CACHE")
KEPT = {*FOLDERS, "CAPSBENCH_REQUIRE_TOOLS"}
TERMINAL = {  # typer and rich take a pipe for a terminal, or one of another width
    "CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "GITHUB_ACTIONS", "LINES", "PY_COLORS", "TERMINAL_WIDTH",
    "TTY_COMPATIBLE", "TTY_INTERACTIVE", "TYPER_USE_RICH",
}  # fmt: skip
REPOSITORY = {  # a git hook names its own repository to all that it starts
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CONFIG_PARAMETERS", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
}  # fmt: skip
# What tests start reads torch: four seconds of a core, again and again, where nothing may be kept compiled; two where
# it may. A container's image often forbids it.
PYTHON = {"PYTHONDONTWRITEBYTECODE"}
# The rest of the user's git stays: where a clone belongs to somebody else, safe.directory is what lets git read it.
GIT = {"commit.gpgSign": "false", "core.hooksPath": os.devnull, "core.excludesFile": os.devnull}


def clear(environment: MutableMapping[str, str]) -> None:
    """Take out what would alter results, and make relative folders absolute: tests work in folders of their own."""
    ours = {name for name in environment if name.startswith(("CAPSBENCH_", "SNAKEMAKE_"))}
    for name in (ours - KEPT) | TERMINAL | REPOSITORY | PYTHON:
        environment.pop(name, None)
    for name in FOLDERS:
        if environment.get(name):
            environment[name] = str(Path(environment[name]).expanduser().absolute())
    first = int(environment.get("GIT_CONFIG_COUNT") or 0)
    for number, (key, value) in enumerate(GIT.items(), first):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    environment["GIT_CONFIG_COUNT"] = str(first + len(GIT))
