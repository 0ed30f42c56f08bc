"""The official affNIST files: written here in their layout, read back, and refused when anything is wrong."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made import mat_bytes, official_fields, official_mat, transformed, uci_digits

from capsbench.data import affnist_files
from capsbench.data.affnist_files import OfficialAffnist, read_files, read_part
from capsbench.data.affnist_place import find_files
from capsbench.data.batch import DigitSet
from capsbench.data.orientation import is_transposed
from capsbench.data.placed import unit
from capsbench.errors import DataError

PIXELS, LABELS, ORIGINALS = transformed()
DIGITS = uci_digits()
TEN = slice(0, 10)


def batches(turn: Callable[[np.ndarray], np.ndarray] = lambda pixels: pixels) -> dict[str, bytes]:
    """The 32-file form: file k holds transform k of every digit."""
    return {
        f"{k + 1}.mat": mat_bytes(official_fields(turn(PIXELS[k::32]), LABELS[k::32], ORIGINALS[k::32]))
        for k in range(32)
    }


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def write_form(folder: Path, form: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if form == "test_batches":
        (folder / form).mkdir()
        for name, content in batches().items():
            (folder / form / name).write_bytes(content)
    elif form == "test_batches.zip":
        noise = {"test_batches/": b"", "__MACOSX/test_batches/._1.mat": b"x", "test_batches/read me.txt": b"x"}
        members = {f"test_batches/{name}": content for name, content in reversed(batches().items())}
        (folder / form).write_bytes(zipped(noise | members))
    else:
        (folder / form).write_bytes(zipped({"test.mat": official_mat()}) if form.endswith(".zip") else official_mat())
    return folder / form


def read(path: Path) -> OfficialAffnist:
    return read_files(path, DIGITS, "digest")


@pytest.mark.parametrize("form", ["test.mat", "test.mat.zip", "test_batches", "test_batches.zip"])
@pytest.mark.parametrize("place", ["affNIST", "affNIST/transformed"])
def test_each_official_form_is_found_and_read_back(form: str, place: str, tmp_path: Path) -> None:
    path = write_form(tmp_path / place, form)
    assert find_files(tmp_path) == path
    found = read(path)
    assert (found.name, found.digest, len(found)) == ("affnist", "digest", 1280)
    order = np.argsort(np.arange(1280) % 32, kind="stable") if "batches" in form else np.arange(1280)
    images = found.images(0, 1280)
    assert torch.equal(images, unit(torch.from_numpy(PIXELS[order]))[:, None])
    assert torch.equal(found.images(700, 703), images[700:703])
    assert found.labels.tolist() == LABELS[order].tolist()
    assert found.source.tolist() == ORIGINALS[order].tolist()


def test_without_files_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "affNIST").mkdir()
    assert find_files(tmp_path) is None


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_the_images_come_out_upright_whichever_way_the_file_has_them(order: str, tmp_path: Path) -> None:
    stored = PIXELS if order == "rows" else PIXELS.transpose(0, 2, 1)
    path = tmp_path / "test.mat"
    path.write_bytes(mat_bytes(official_fields(np.ascontiguousarray(stored), LABELS, ORIGINALS)))
    found = read(path)
    images = found.images(0, 1280)
    assert images.is_contiguous()
    assert torch.equal(images[:, 0], unit(torch.from_numpy(PIXELS)))


@pytest.mark.parametrize(
    "turn",
    [
        lambda pixels: pixels[:, ::-1],
        lambda pixels: pixels[:, :, ::-1],
        lambda pixels: np.rot90(pixels, 2, (1, 2)),
        lambda pixels: np.roll(pixels, 640, axis=0),  # upright, but of other digits
        lambda pixels: np.where(np.arange(1280)[:, None, None] % 10 < 3, np.roll(pixels, 640, axis=0), pixels),
        lambda pixels: np.random.default_rng(0).permuted(pixels.reshape(-1, 1600), axis=1).reshape(-1, 40, 40),
        lambda pixels: np.zeros_like(pixels),
    ],
    ids=["upside down", "mirrored", "half turn", "other digits", "three in ten of other digits", "scrambled", "blank"],
)
def test_images_that_fit_neither_way_are_refused(turn: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "test.mat"
    path.write_bytes(mat_bytes(official_fields(np.ascontiguousarray(turn(PIXELS)), LABELS, ORIGINALS)))
    with pytest.raises(
        DataError, match=r"test.mat does not show the digits it names: .* correlate -?\d\.\d\d as stored"
    ):
        read(path)


def test_the_orientation_of_mnist_is_clear(mnist_folder: Path) -> None:
    from capsbench.data.affnist import SyntheticAffnist
    from capsbench.data.digits import load_digits
    from capsbench.data.source import find_source

    test = load_digits(find_source("mnist", mnist_folder)).test
    digits = DigitSet(test.images[::40], test.labels[::40])
    made = SyntheticAffnist(digits, per_digit=2, seed=0)
    images = (made.images(0, 500)[:, 0] * 255).round().to(torch.uint8)
    assert not is_transposed(images, digits.images[made.source], "rows")
    assert is_transposed(images.transpose(1, 2), digits.images[made.source], "columns")


def changed(**fields: object) -> bytes:
    """Ten official images with some fields replaced, or taken out when None."""
    official = official_fields(PIXELS[TEN], LABELS[TEN], ORIGINALS[TEN]) | fields
    return mat_bytes({name: values for name, values in official.items() if values is not None})


WRONG_ONE_OF_N = np.eye(10)[:, (LABELS[TEN] + 1) % 10]
LABEL_ROW = LABELS[TEN][None].astype(float)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"image": PIXELS[TEN].reshape(10, 1600).T.astype(float)}, "image is float64 1600 x 10, not uint8 1600 x N"),
        ({"image": PIXELS[TEN].reshape(10, 1600)}, "image is uint8 10 x 1600"),
        ({"image": PIXELS[TEN]}, "image is uint8 10 x 40 x 40"),
        ({"image": np.zeros((784, 10), np.uint8)}, "image is uint8 784 x 10"),
        ({"image": np.zeros((1600, 0), np.uint8)}, "image is uint8 1600 x 0"),
        ({"image": "pixels"}, "image is none"),
        ({"image": None}, "fields are not affNIST's"),
        ({"original_index": None}, "fields are not affNIST's"),
        ({"label_int": LABEL_ROW + 10}, "label_int holds something else than whole numbers from 0 to 9"),
        ({"label_int": LABEL_ROW - 10}, "label_int holds something else than whole numbers from 0 to 9"),
        ({"label_int": LABEL_ROW + 0.5}, "label_int holds something else"),
        ({"label_int": LABEL_ROW * np.nan}, "label_int holds something else"),
        ({"label_int": LABEL_ROW[:, :9]}, "label_int is not a list of 10 numbers"),
        ({"label_int": "labels"}, "label_int is not a list of 10 numbers"),
        ({"label_one_of_n": WRONG_ONE_OF_N}, "label_one_of_n is not 10 x 10 or disagrees with label_int"),
        ({"label_one_of_n": WRONG_ONE_OF_N.T[:, :9]}, "label_one_of_n is not 10 x 10"),
        ({"label_one_of_n": np.ones((10, 10))}, "disagrees with label_int"),
        ({"label_one_of_n": np.full((10, 10), np.nan)}, "disagrees with label_int"),
        (
            {"original_index": ORIGINALS[TEN][None]},
            r"original index\) holds something else than whole numbers from 1 to 40",
        ),
        ({"original_index": ORIGINALS[TEN][None] + 41}, r"original index\) holds something else"),
    ],
)
def test_wrong_fields_are_one_sentence(fields: dict, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        read_part(changed(**fields), 40, "my.mat")
    assert str(caught.value).startswith("my.mat cannot be read as affNIST: ")


def test_columns_and_narrow_numbers_are_fine() -> None:
    part = read_part(
        changed(label_int=LABEL_ROW.T, original_index=ORIGINALS[TEN][:, None].astype(np.uint16) + 1), 40, ""
    )
    assert part.labels.tolist() == LABELS[TEN].tolist()
    assert part.originals.tolist() == ORIGINALS[TEN].tolist()


@pytest.mark.parametrize(
    ("images", "originals", "held"),
    [(slice(0, 1279), ORIGINALS, "1,279"), (slice(0, 1280), np.r_[ORIGINALS[1:], ORIGINALS[:1]], "1,280")],
)
def test_a_part_of_the_test_set_is_not_the_test_set(images: slice, originals, held: str, tmp_path: Path) -> None:
    labels = DIGITS.labels.numpy()[originals]
    if held == "1,280":  # one digit 31 times, another 33 times
        originals = ORIGINALS.copy()
        originals[0] = 1
        labels = DIGITS.labels.numpy()[originals]
    path = tmp_path / "test.mat"
    path.write_bytes(mat_bytes(official_fields(PIXELS[images], labels[images], originals[images])))
    with pytest.raises(DataError, match=f"not the whole affNIST test set: it holds {held} images, not each of 40 test"):
        read(path)


def test_too_many_images_are_not_the_test_set(tmp_path: Path) -> None:
    path = tmp_path / "test.mat"
    twice = [np.concatenate([part, part]) for part in (PIXELS, LABELS, ORIGINALS)]
    path.write_bytes(mat_bytes(official_fields(*twice)))
    with pytest.raises(DataError, match="it holds 2,560 images"):
        read(path)


def test_files_of_other_digits_are_refused(tmp_path: Path) -> None:
    path = write_form(tmp_path, "test.mat")
    with pytest.raises(DataError, match="does not belong to these test digits: image 0 has label"):
        read_files(path, DigitSet(DIGITS.images, (DIGITS.labels + 1) % 10), "digest")


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    path = write_form(tmp_path, "test_batches")
    (path / "17.mat").unlink()
    with pytest.raises(DataError, match=r"17\.mat is missing"):
        read(path)


def members_without(*names: str) -> dict[str, bytes]:
    return {f"test_batches/{k}.mat": b"x" for k in range(1, 33) if str(k) not in names}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"../test.mat": b"x"}, "points outside its folder"),
        ({"/elsewhere/test.mat": b"x"}, "points outside its folder"),
        ({"a/../../test.mat": b"x"}, "points outside its folder"),
        ({"C:\\test.mat": b"x"}, "points outside its folder"),
        ({"..\\test.mat": b"x"}, "points outside its folder"),
        ({"test.mat": b"x", "../x": b"x"}, "points outside its folder"),
        ({}, "should hold test.mat, or 1.mat to 32.mat"),
        ({"training.mat": b"x"}, "should hold test.mat"),
        ({"test.mat": b"x", "1.mat": b"x"}, "should hold test.mat"),
        (members_without("5"), "should hold test.mat"),
        (members_without() | {"other/5.mat": b"x"}, "holds 5.mat twice"),
        (members_without() | {"33.mat": b"x"}, "and nothing else"),
        ({"test.mat": b"no mat file"}, "test.mat in .*no MATLAB Level 5 header"),
    ],
)
def test_archives_with_other_members_are_refused(members: dict[str, bytes], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "test.mat.zip"
    path.write_bytes(zipped(members))
    with pytest.raises(DataError, match=reason):
        read(path)
    assert [file.name for file in tmp_path.rglob("*")] == ["test.mat.zip"]  # nothing is ever unpacked to the disk


@pytest.mark.parametrize("declared", [True, False])
def test_an_archive_that_unpacks_to_too_much_is_refused(declared: bool, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "test.mat.zip"
    content = bytearray(zipped({"test.mat": b"\0" * 100_000}))
    if not declared:  # the directory lies about the size; its sizes stand 20 and 24 bytes after the signature
        start = content.index(b"PK\1\2")
        content[start + 24 : start + 28] = (10).to_bytes(4, "little")
    path.write_bytes(content)
    monkeypatch.setattr(affnist_files, "LIMIT", 50_000)
    with pytest.raises(DataError, match="larger than 50,000 bytes" if declared else "cannot be read as affNIST"):
        read(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch) -> None:
    path = write_form(tmp_path, "test.mat")
    monkeypatch.setattr(affnist_files, "LIMIT", 1000)
    with pytest.raises(DataError, match="holds more than 1,000 bytes"):
        read(path)


def test_a_locked_archive_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "test.mat.zip"
    content = bytearray(zipped({"test.mat": official_mat()}))
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + offset] |= 1  # marked as encrypted
    path.write_bytes(content)
    with pytest.raises(DataError, match="encrypted"):
        read(path)


ARCHIVE = zipped({"test.mat": mat_bytes(official_fields(PIXELS[:2], LABELS[:2], ORIGINALS[:2]))})


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_archives_raise_nothing_but_dataerror(data: st.DataObject, tmp_path_factory) -> None:
    content = bytearray(ARCHIVE)
    front, back = st.integers(0, 60), st.integers(len(content) - 90, len(content) - 1)  # the zip's own words
    for place in data.draw(st.lists(front | back | st.integers(0, len(content) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("archive") / "test.mat.zip"
    path.write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    with pytest.raises(DataError):  # whole, it still holds 2 of 1,280 images
        read(path)


def test_one_wrong_label_is_refused(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[700] = (labels[700] + 1) % 10
    path = tmp_path / "test.mat"
    path.write_bytes(mat_bytes(official_fields(PIXELS, labels, ORIGINALS)))
    with pytest.raises(DataError, match=f"image 700 has label {labels[700]}, the digit it was made from has another"):
        read(path)


def test_images_all_over_the_file_decide_whether_it_shows_its_digits(tmp_path: Path) -> None:
    pixels = PIXELS.copy()
    pixels[600:] = pixels[600:, ::-1]  # upside down behind the first 600
    path = tmp_path / "test.mat"
    path.write_bytes(mat_bytes(official_fields(pixels, LABELS, ORIGINALS)))
    with pytest.raises(DataError, match="does not show the digits it names"):
        read(path)
