"""Where the official affNIST comes from, and that a file which changes is noticed."""

from __future__ import annotations

import errno
import functools
import http.server
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from made import official_mat, uci_digits

from capsbench.data import affnist_source
from capsbench.data.affnist_place import files_digest
from capsbench.data.affnist_source import download_affnist, official_affnist
from capsbench.errors import DataError, ResourceError

DIGITS = uci_digits()


@functools.cache
def archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("test.mat", official_mat())
    return stream.getvalue()


class Site(http.server.BaseHTTPRequestHandler):
    """Serves `files`; a path that ends in -short breaks off half way."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        content = self.files.get(self.path.removesuffix("-short"))
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.path.endswith("-short") else content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Site.files = {"/test.mat.zip": archive(), "/page.html": b"<html>moved</html>"}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def put(folder: Path) -> Path:
    (folder / "affNIST").mkdir(parents=True)
    (folder / "affNIST" / "test.mat").write_bytes(official_mat())
    return folder / "affNIST" / "test.mat"


def test_without_files_the_answer_is_none(nothing_named: Path, tmp_path: Path) -> None:
    assert official_affnist(DIGITS) is None
    assert official_affnist(DIGITS, tmp_path) is None
    assert not nothing_named.exists()


def test_the_named_folder_comes_before_the_plans_and_both_before_the_cache(
    nothing_named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, plans, named = put(nothing_named), put(tmp_path / "plan"), put(tmp_path / "named")
    record = nothing_named / "affNIST" / "digests.json"
    digest = files_digest(cached)
    assert official_affnist(DIGITS).digest == digest
    assert list(json.loads(record.read_text())) == [str(cached)]
    official_affnist(DIGITS, tmp_path / "plan")
    assert list(json.loads(record.read_text())) == [str(cached), str(plans)]
    monkeypatch.setenv("CAPSBENCH_DATA", str(tmp_path / "named"))
    official_affnist(DIGITS, tmp_path / "plan")
    assert json.loads(record.read_text()) == {str(cached): digest, str(plans): digest, str(named): digest}


def test_a_file_that_changed_since_its_first_use_is_refused(nothing_named: Path) -> None:
    path = put(nothing_named)
    official_affnist(DIGITS)
    official_affnist(DIGITS)
    path.write_bytes(official_mat(compressed=False))  # the same images, but another file
    with pytest.raises(DataError, match="not the file it was at its first use: its SHA-256 is"):
        official_affnist(DIGITS)


def test_a_file_that_cannot_be_read_is_not_recorded(nothing_named: Path) -> None:
    path = put(nothing_named)
    path.write_bytes(official_mat()[:-50])
    with pytest.raises(DataError, match="truncated"):
        official_affnist(DIGITS)
    path.write_bytes(official_mat())
    assert len(official_affnist(DIGITS)) == 1280


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_damaged_record_is_a_sentence(content: str, nothing_named: Path) -> None:
    put(nothing_named)
    (nothing_named / "affNIST" / "digests.json").write_text(content)
    with pytest.raises(DataError, match=r"digests.json .*delete it, and the files count as new\.$"):
        official_affnist(DIGITS)


def test_the_digest_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    for name, content in (("1.mat", b"a"), ("2.mat", b"b")):
        (tmp_path / name).write_bytes(content)
    before = files_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert files_digest(tmp_path) == before
    (tmp_path / "2.mat").write_bytes(b"c")
    assert files_digest(tmp_path) != before


def test_a_download_is_used_and_kept(site: str, nothing_named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affnist_source, "URL", f"{site}/test.mat.zip")
    download_affnist(nothing_named / "affNIST")  # the cache, as the command does
    assert len(official_affnist(DIGITS)) == 1280
    assert sorted(path.name for path in (nothing_named / "affNIST").iterdir()) == ["digests.json", "test.mat.zip"]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("gone.zip", r"could not be downloaded from .*gone.zip \(Not Found\)"),
        ("page.html", "gave 18 bytes that are no whole zip file"),
        ("test.mat.zip-short", "could not be downloaded from .*short|gave .* bytes that are no whole zip file"),
    ],
)
def test_a_failed_download_is_a_sentence_and_leaves_nothing(page: str, reason: str, site: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        download_affnist(tmp_path / "affNIST", f"{site}/{page}")
    assert str(caught.value).endswith("or use the synthetic set.")
    assert list(tmp_path.rglob("*")) == []


def test_no_network_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"could not be downloaded from http://127.0.0.1:9/ \(.*refused"):
        download_affnist(tmp_path, "http://127.0.0.1:9/")


def test_a_cache_that_cannot_be_written_is_a_sentence(site: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match=r"cannot be written .*CAPSBENCH_CACHE"):
        download_affnist(tmp_path / "file", f"{site}/test.mat.zip")


def test_a_record_that_says_it_already_is_not_written_again(
    nothing_named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that others filled may only be read."""
    put(nothing_named)
    official_affnist(DIGITS)
    monkeypatch.setattr(affnist_source, "write_json", lambda *_: pytest.fail("the record was written again"))
    assert official_affnist(DIGITS) is not None


def test_the_digests_of_a_changed_file_are_each_called_what_they_are(nothing_named: Path) -> None:
    path = put(nothing_named)
    first = official_affnist(DIGITS).digest
    path.write_bytes(official_mat(compressed=False))
    with pytest.raises(DataError, match=f"its SHA-256 is {files_digest(path)}, not {first};"):
        official_affnist(DIGITS)


def test_a_download_that_the_disk_has_no_room_for_leaves_nothing(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(path: Path, content: bytes) -> None:
        with path.open("wb") as stream:
            stream.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(ResourceError, match=r"cannot be written \(No space left"):
        download_affnist(tmp_path / "affNIST", f"{site}/test.mat.zip")
    assert not (tmp_path / "affNIST" / "test.mat.zip").exists()
