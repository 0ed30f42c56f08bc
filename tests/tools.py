"""Programs that some tests need beside Python: skipped where one is missing, failed where that is forbidden."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from capsbench.data.source import cache_folder

REQUIRED = "CAPSBENCH_REQUIRE_TOOLS"  # .ci/run sets it: there a skipped test would be a test that cannot fail


def tool(*names: str) -> str:
    """The path of the first program of these names; skips the test, or fails it under REQUIRED, if there is none."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        unavailable(f"no {' or '.join(names)} on this machine")
    return found


def mnist_folder() -> str:
    """The folder with MNIST that CAPSBENCH_DATA names, or the cache; skips the test, or fails it under REQUIRED."""
    named = os.environ.get("CAPSBENCH_DATA") or str(cache_folder())
    if not any(Path(named).rglob("train-images*")):
        unavailable(f"no MNIST in {named}; name a folder with CAPSBENCH_DATA")
    return named


def unavailable(reason: str) -> NoReturn:
    """Skip the test for a reason that lies in the machine; fail it under REQUIRED."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    pytest.skip(reason)
