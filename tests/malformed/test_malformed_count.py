"""How many malformed inputs there are, and that their number is told, by workers of xdist too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import test_malformed_arrays
import test_malformed_plans
import test_malformed_results
from malformed import declared


def test_there_are_ten_thousand() -> None:
    modules = (test_malformed_arrays, test_malformed_plans, test_malformed_results)
    assert sum(map(declared, modules)) >= 10_000


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_the_number_and_the_seed_are_told_at_the_end(workers: int, tmp_path: Path) -> None:
    file = Path(__file__).with_name("test_malformed_arrays.py")
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "-k", "idx_files", str(file)]
    command += ["--basetemp", str(tmp_path / "base")]  # in the common one it takes a minute to remove what others left
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout
    assert "malformed inputs: 500 with seed 7 (500 idx files)" in done.stdout
