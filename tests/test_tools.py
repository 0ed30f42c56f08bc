"""A missing program, or MNIST, skips a test with its name, and fails it where .ci/run says so."""

from __future__ import annotations

import pytest
from tools import REQUIRED, mnist_folder, tool


def test_a_missing_program_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such-a-program or another on this machine"):
        tool("such-a-program", "another")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match=REQUIRED):
        tool("such-a-program")
    assert tool("such-a-program", "sh").endswith("/sh")


def test_missing_mnist_skips_or_fails(no_data: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no MNIST in .*; name a folder with CAPSBENCH_DATA"):
        mnist_folder()
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match=REQUIRED):
        mnist_folder()
