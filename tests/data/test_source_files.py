"""Every file is checked before use: what passes, and what each kind of damage is answered with."""

from __future__ import annotations

import gzip
import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsbench.data import raw
from capsbench.data.digits import load_digits
from capsbench.data.source import DataSource, find_source, verify
from capsbench.errors import DataError


@pytest.fixture
def real(mnist_folder, tmp_path) -> DataSource:
    """The real MNIST in a folder whose files can be replaced: symbolic links to those of CAPSBENCH_DATA."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for name in raw.FILES:
        path = raw.file_at(find_source("mnist").folder, name)
        (folder / path.name).symlink_to(path)
    return DataSource("mnist", folder, "MNIST", "plan")


def content_of(source: DataSource, name: str) -> bytes:
    path = raw.file_at(source.folder, name)
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def replace(source: DataSource, name: str, content: bytes, suffix: str) -> Path:
    """Put `content` in the place of the file `name`, whatever its suffix was."""
    for path in (source.folder / name, source.folder / f"{name}.gz"):
        path.unlink(missing_ok=True)
    path = source.folder / f"{name}{suffix}"
    path.write_bytes(content)
    return path


def refused(source: DataSource, path: Path, what: str) -> None:
    """verify and load_digits both answer with one sentence that names the file, the fault and a remedy."""
    for use in (verify, load_digits):
        with pytest.raises(DataError, match=what) as caught:
            use(source)
        sentence = str(caught.value)
        assert str(path) in sentence
        assert "\n" not in sentence
        assert sentence.endswith(f"; {raw.REMEDY}.")


def test_real_files_have_the_published_checksums(real):
    assert verify(real) == raw.MNIST_SHA256


def test_unpacked_and_newly_gzipped_files_are_the_same_data(real):
    for number, name in enumerate(raw.FILES):
        content = content_of(real, name)
        replace(real, name, gzip.compress(content, 1) if number % 2 else content, ".gz" if number % 2 else "")
    assert verify(real) == raw.MNIST_SHA256
    assert len(load_digits(real).test.labels) == 10_000


def test_reading_writes_nothing(real):
    def everything() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in real.folder.parent.rglob("*"))

    before = everything()
    load_digits(real)
    verify(real)
    assert everything() == before


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", raw.FILES)
def test_one_altered_byte_in_any_file(real, name, suffix):
    content = bytearray(content_of(real, name))
    content[-1] ^= 1
    path = replace(real, name, gzip.compress(content, 1) if suffix else bytes(content), suffix)
    refused(real, path, "is altered: its SHA-256 is [0-9a-f]{64}, not the published")


def cut_gz(content: bytes) -> tuple[bytes, str, str]:
    return gzip.compress(content)[:3000], ".gz", "is truncated: its gzip stream has no end"


def empty_gz(content: bytes) -> tuple[bytes, str, str]:
    return b"", ".gz", "is truncated: 0 bytes of 10,008"


def flipped_gz(content: bytes) -> tuple[bytes, str, str]:
    packed = bytearray(gzip.compress(content, mtime=0))
    packed[-6] ^= 1  # in the gzip checksum itself
    return bytes(packed), ".gz", "is altered or no gzip file"


def text_gz(content: bytes) -> tuple[bytes, str, str]:
    return b"<html>Please log in</html>", ".gz", "is altered or no gzip file"


def bomb_gz(content: bytes) -> tuple[bytes, str, str]:
    return gzip.compress(bytes(1_000_000)), ".gz", "holds more than the 10,008 bytes"


def cut(content: bytes) -> tuple[bytes, str, str]:
    return content[:-1], "", "is truncated: 10,007 bytes of 10,008"


def longer(content: bytes) -> tuple[bytes, str, str]:
    return content + b"\0", "", "holds more than the 10,008 bytes"


@pytest.mark.parametrize("damage", [cut_gz, empty_gz, flipped_gz, text_gz, bomb_gz, cut, longer])
def test_damaged_labels(real, damage):
    content, suffix, what = damage(content_of(real, "t10k-labels-idx1-ubyte"))
    refused(real, replace(real, "t10k-labels-idx1-ubyte", content, suffix), what)


def test_a_file_that_went_away_after_it_was_found(real):
    (real.folder / "t10k-labels-idx1-ubyte.gz").unlink()
    refused(real, real.folder, "lacks t10k-labels-idx1-ubyte.gz")


def test_fashion_files_are_held_to_torchvisions_checksums(small_fashion, small_files):
    source = find_source("fashion-mnist", small_fashion)
    expected = {
        name.removesuffix(".gz"): hashlib.sha256(gzip.decompress(c)).hexdigest() for name, c in small_files.items()
    }
    assert verify(source) == expected
    repacked = gzip.compress(gzip.decompress(small_files["t10k-labels-idx1-ubyte.gz"]), mtime=1)
    path = replace(source, "t10k-labels-idx1-ubyte", repacked, ".gz")
    refused(source, path, "is altered: its MD5 is [0-9a-f]{32}, not the published")


def test_the_official_fashion_checksum_is_asked_when_nobody_stands_in(small_fashion, monkeypatch):
    import torchvision

    monkeypatch.undo()  # torchvision's own list again: small files are not Fashion-MNIST
    source = DataSource("fashion-mnist", small_fashion / "FashionMNIST" / "raw", "Fashion-MNIST", "plan")
    official = dict(torchvision.datasets.FashionMNIST.resources)["train-images-idx3-ubyte.gz"]
    refused(source, source.folder / "train-images-idx3-ubyte.gz", f"not the published {official}")


def test_unpacked_fashion_files_alone_do_not_do(small_fashion, small_files):
    source = find_source("fashion-mnist", small_fashion)
    name = "train-labels-idx1-ubyte"
    replace(source, name, gzip.decompress(small_files[f"{name}.gz"]), "")
    assert find_source("fashion-mnist", small_fashion) == source  # found, but not usable
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz is needed, since torchvision's checksum is of"):
        verify(source)


def test_a_fashion_bomb_with_the_right_checksum(small_fashion, small_files, monkeypatch):
    import torchvision

    bomb = gzip.compress(bytes(60_009))
    resources = [
        (n, hashlib.md5(bomb).hexdigest() if "train-labels" in n else m)
        for n, m in torchvision.datasets.FashionMNIST.resources
    ]
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "resources", resources)
    source = find_source("fashion-mnist", small_fashion)
    refused(source, replace(source, "train-labels-idx1-ubyte", bomb, ".gz"), "holds more than the 60,008 bytes")


PACKED = gzip.compress(bytes(range(256)) * 4, mtime=0)


@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(lambda tail: PACKED[:10] + tail, st.binary(max_size=100)),  # a gzip header, then anything
        st.builds(
            lambda at, byte: PACKED[:at] + byte + PACKED[at + 1 :], st.integers(0, len(PACKED)), st.binary(max_size=2)
        ),
    ),
    st.sampled_from(["", ".gz"]),
)
def test_whatever_the_file_holds_only_data_errors_escape(content, suffix):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"t10k-labels-idx1-ubyte{suffix}").write_bytes(content)
        with pytest.raises(DataError):
            raw.read_checked("mnist", Path(folder), "t10k-labels-idx1-ubyte")
