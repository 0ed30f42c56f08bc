"""What a step frees, the next one takes again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
import torch
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a fault is a page then, whatever this machine is set to
from capsbench.training.device import give_memory_back, set_up
if "kept" in sys.argv:
    set_up(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(30):
    torch.ones(25_000_000)  # 100 MB, freed at once
    if "back" in sys.argv:
        give_memory_back()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() / 1e8)
"""


def given(*words: str) -> float:
    """How often the memory of one allocation was given by the system in the course of thirty."""
    return float(subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="nothing is asked of another C library")
def test_freed_memory_is_taken_again_until_it_is_given_back() -> None:
    assert given("kept") < 15  # some times, until the heap has come to lie
    assert given() > 28
    assert given("kept", "back") > 28
