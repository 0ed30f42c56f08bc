"""Data for the data tests: the real MNIST where there is some, small files in its format everywhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tools
from mirror import Mirror
from small_data import resources_of, small_set


@pytest.fixture
def mnist_folder() -> Path:
    """The folder with the real MNIST: the one that CAPSBENCH_DATA names, or the cache."""
    return Path(tools.mnist_folder())


@pytest.fixture
def _no_proxy(monkeypatch) -> None:
    """A company's proxy would be asked for this machine's own servers, and find none."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def nothing_named(_no_proxy, tmp_path, monkeypatch) -> Path:
    """No named data and an empty cache of the test's own; the cache's folder, not made yet."""
    monkeypatch.delenv("CAPSBENCH_DATA", raising=False)
    monkeypatch.setenv("CAPSBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_files() -> dict[str, bytes]:
    """Four small .gz files in MNIST's format, by name."""
    return small_set()


@pytest.fixture
def small_fashion(nothing_named, tmp_path, monkeypatch, small_files) -> Path:
    """A folder with the small files in Fashion-MNIST's layout. The stand-in: torchvision's checksums are theirs."""
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.resources", resources_of(small_files))
    raw = tmp_path / "data" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in small_files.items():
        (raw / name).write_bytes(content)
    return tmp_path / "data"


@pytest.fixture
def serve(_no_proxy) -> Iterator[Callable[[dict[str, bytes]], Mirror]]:
    """Starts servers, and stops them at the end of the test."""
    started = []

    def start(files: dict[str, bytes]) -> Mirror:
        mirror = Mirror(files)
        threading.Thread(target=mirror.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        started.append(mirror)
        return mirror

    yield start
    for mirror in started:
        mirror.shutdown()
        mirror.server_close()


@pytest.fixture
def fashion(serve, small_files, nothing_named, monkeypatch) -> Mirror:
    """A mirror of small files that torchvision takes for Fashion-MNIST's."""
    mirror = serve(small_files)
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.mirrors", [mirror.address])
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.resources", resources_of(small_files))
    return mirror
