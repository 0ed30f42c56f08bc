"""What a step frees, the next one takes again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from capsbench.training.device import set_up
if "kept" in sys.argv:
    set_up(1)
torch.ones(25_000_000)  # 100 MB, freed at once
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(25_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(*words: str) -> int:
    """Pages that the second of two equal allocations had to be given."""
    return int(subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="nothing is asked of another C library")
def test_freed_memory_is_taken_again() -> None:
    assert new_pages("kept") < 1000
    assert new_pages() > 10_000  # as it is without: 4 KB each
