"""What all tests share: threads, folders, a plan of a few seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from counting import COUNTS, summary
from longest import rank
from surroundings import clear

REPOSITORY = Path(__file__).resolve().parent.parent
SLOW = 2400  # seconds for what takes two minutes on two idle cores: CI's may be slower, and work on another test too
clear(os.environ)  # before a test imports typer, which asks about the terminal then and never again
sys.dont_write_bytecode = False  # as it is without the variable that was just taken out
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # processes with two threads each wait beside others on two cores
torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell's background job (CI's, say) ignores Ctrl-C, and so would all that the tests start: a test that interrupts
    # a process would then prove something else. A handler of ours is not inherited, so they begin as in a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    with contextlib.suppress(ImportError):  # the few tests that a GPU machine runs do without (docs/gpu-run.md)
        from hypothesis import settings

        # A loaded machine takes its time; pytest's limit stays. The same examples each time: what fails is the change,
        # not the draw. `--hypothesis-profile default` draws new ones.
        settings.register_profile("capsbench", deadline=None, derandomize=True)
        settings.load_profile("capsbench")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.path.name))  # stable: within a file its own order
    for item in items:
        if "slow" in item.keywords and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW))
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a CUDA GPU")
        for item in items:
            if "cuda" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def _products_are_deterministic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch asks once a process, at a GPU's first product: whichever test comes first must not settle it for all."""
    if "cuda" in request.keywords:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """A test draws the same numbers whichever tests its worker has run before."""
    torch.manual_seed(0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a worker of xdist, which reports nothing itself
        session.config.workeroutput["malformed"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    COUNTS.update(getattr(node, "workeroutput", {}).get("malformed", {}))  # none of a worker that died


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if COUNTS:
        terminalreporter.write_line(summary())


@pytest.fixture
def repository() -> Path:
    """The clone that the tests stand in."""
    return REPOSITORY


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results root."""
    root = tmp_path / "results"
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(root))
    return root


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """No folder is named, the cache is empty, and the mirrors are not asked: the digits stand in at once."""
    monkeypatch.delenv("CAPSBENCH_DATA", raising=False)
    monkeypatch.setenv("CAPSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CAPSBENCH_STAND_IN", "1")
    return dict(os.environ)
