"""Downloads from a real server on this machine: whole or not at all, whatever the mirror and the neighbours do.

The one stand-in is the address: torchvision's lists of mirrors point at the local server. Where the small files are
served instead of the real MNIST, torchvision's list of checksums is theirs.
"""

from __future__ import annotations

import threading
import time

import pytest
from mirror import FIRST, Handler, everything, whole
from tools import unavailable

from capsbench.data import download, raw
from capsbench.data.digits import load_digits
from capsbench.data.source import find_source, verify
from capsbench.errors import DataError, ResourceError


@pytest.fixture
def real_files(mnist_folder) -> dict[str, bytes]:
    """The real MNIST's .gz files."""
    folder = find_source("mnist", mnist_folder).folder
    paths = [raw.file_at(folder, name) for name in raw.FILES]
    if any(path.suffix != ".gz" for path in paths):
        unavailable(f"MNIST in {folder} is not as it is downloaded, in .gz files")
    return {path.name: path.read_bytes() for path in paths}


def test_the_real_mnist_is_downloaded_once_and_then_cached(real_files, serve, nothing_named, monkeypatch):
    mirror = serve(real_files)
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [mirror.address])
    source = find_source("mnist")
    assert (source.origin, source.folder) == ("download", nothing_named / "MNIST" / "raw")
    assert everything(nothing_named) == whole("MNIST")
    assert verify(source) == raw.MNIST_SHA256
    asked = len(mirror.asked)
    assert find_source("mnist").origin == "cache"
    assert len(mirror.asked) == asked


def test_small_files_arrive_as_they_are(fashion, small_files, nothing_named):
    source = find_source("fashion-mnist")
    assert {path.name: path.read_bytes() for path in source.folder.iterdir()} == small_files
    assert everything(nothing_named) == whole("FashionMNIST")
    assert len(load_digits(source).train.labels) == 40


STALL = 3.0  # of what sends nothing for 30; a good mirror on a loaded machine is faster
FAULTS = {
    Handler.send_half: "altered|truncated|IncompleteRead",
    Handler.send_half_as_if_whole: "is altered: its MD5",
    Handler.send_nothing: f"nothing came for {STALL:g} s",
    Handler.send_404: "HTTP Error 404: Not Found",
    Handler.send_login_page: "is altered: its MD5",
}


@pytest.mark.parametrize("name", [FIRST, "t10k-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_answer_leaves_nothing_behind(fashion, nothing_named, monkeypatch, fault, name):
    fashion.special[name] = fault
    if fault is Handler.send_nothing:
        monkeypatch.setattr(download, "STALL_SECONDS", STALL)
    with pytest.raises(DataError, match=FAULTS[fault]) as caught:
        find_source("fashion-mnist", fallback=True)
    sentence = str(caught.value)
    assert f"Fashion-MNIST could not be downloaded ({fashion.address}{name}: " in sentence
    assert sentence.endswith("; name a folder that holds its four files with CAPSBENCH_DATA.")
    assert str(nothing_named) not in sentence
    assert everything(nothing_named) == []
    fashion.special.clear()
    assert find_source("fashion-mnist").origin == "download"  # and the next try is not disturbed by this one


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_mirror_is_left_for_the_next_and_not_asked_again(fashion, serve, small_files, monkeypatch, fault):
    if fault is Handler.send_nothing:
        monkeypatch.setattr(download, "STALL_SECONDS", STALL)
    bad = serve(small_files)
    bad.special = dict.fromkeys(small_files, fault)
    monkeypatch.setattr("torchvision.datasets.FashionMNIST.mirrors", [bad.address, fashion.address])
    assert len(verify(find_source("fashion-mnist"))) == 4
    assert set(bad.asked) == {FIRST}


def test_altered_mnist_from_a_mirror_is_refused_by_its_content(serve, small_files, nothing_named, monkeypatch):
    mirror = serve(small_files)
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [mirror.address])
    with pytest.raises(DataError, match=f"{FIRST} is truncated: 31,376 bytes of 47,040,016"):
        find_source("mnist")
    assert everything(nothing_named) == []


def test_without_mnist_the_plan_may_go_on_with_digits_that_say_so(serve, small_files, nothing_named, monkeypatch):
    mirror = serve(small_files)
    mirror.special = {FIRST: Handler.send_404}
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [mirror.address, "http://127.0.0.1:1/"])
    source = find_source("mnist", fallback=True)
    assert (source.dataset, source.badge, source.folder) == ("uci-digits", "UCI digits, not MNIST", None)
    for reason in ("HTTP Error 404: Not Found", "Connection refused", "no number that follows is an MNIST number."):
        assert reason in source.notice
    with pytest.raises(DataError, match=r"MNIST could not be downloaded .*; name a folder"):
        find_source("mnist")
    assert everything(nothing_named) == []


def test_a_machine_whose_network_swallows_everything_answers_within_thirty_seconds():
    waits = [len(download.torchvision_mirrors(dataset)) * download.STALL_SECONDS for dataset in raw.TORCHVISION]
    assert max(waits) < 30


def test_a_name_look_up_that_hangs_is_given_up(nothing_named, monkeypatch):
    import socket

    monkeypatch.setattr(download, "STALL_SECONDS", 0.5)
    monkeypatch.setattr("torchvision.datasets.KMNIST.mirrors", ["http://mirror.invalid/", "http://other.invalid/"])
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: end.wait(120))  # a resolver that is cut off
    start = time.monotonic()
    with pytest.raises(DataError, match=r"nothing came for 0\.5 s; http://other\.invalid/"):
        find_source("kmnist")
    assert time.monotonic() - start < 60  # of 1 s; without giving up it would be 120 for each name
    end.set()
    assert everything(nothing_named) == []


def test_a_file_taken_from_the_cache_is_downloaded_again(fashion, nothing_named):
    source = find_source("fashion-mnist")
    (source.folder / "t10k-labels-idx1-ubyte.gz").unlink()
    again = find_source("fashion-mnist")
    assert (again.origin, again.folder) == ("download", source.folder)
    assert len(verify(again)) == 4
    assert everything(nothing_named) == whole("FashionMNIST")


def test_an_altered_cache_is_an_error_and_not_downloaded_over(fashion, nothing_named):
    path = find_source("fashion-mnist").folder / FIRST
    path.write_bytes(b"altered")
    with pytest.raises(DataError, match=f"{path} is altered.* delete its folder if that is the download cache"):
        load_digits(find_source("fashion-mnist", fallback=True))


def test_a_cache_that_cannot_be_written_is_no_reason_for_other_data(fashion, nothing_named):
    nothing_named.write_text("a file where the cache should be")
    with pytest.raises(ResourceError, match=r"cannot be written .* name another folder with CAPSBENCH_CACHE"):
        find_source("mnist", fallback=True)
