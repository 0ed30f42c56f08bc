"""The reader of MATLAB files, held against SciPy's, and against bytes that are no MATLAB file."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from made import mat_bytes, official_fields

from capsbench.data import matlab
from capsbench.data.affnist_files import read_part
from capsbench.data.matlab import read_struct
from capsbench.errors import DataError

FEW = 4
PIXELS = np.random.default_rng(0).integers(0, 256, (FEW, 1600)).astype(np.uint8)
FIELDS = official_fields(PIXELS, np.arange(FEW), np.arange(FEW))
FILES = {compressed: mat_bytes(FIELDS, compressed=compressed) for compressed in (True, False)}


@pytest.mark.parametrize("compressed", [True, False])
def test_every_kind_of_number_is_read_as_scipy_reads_it(compressed: bool) -> None:
    rng = np.random.default_rng(1)
    fields = {kind: rng.integers(0, 100, (3, 5)).astype(kind) for kind in matlab.CLASSES.values()}
    fields |= {"column": np.arange(4.0)[:, None], "one": np.array([[7.5]]), "cube": np.arange(24).reshape(2, 3, 4)}
    fields["flag"] = np.array([[True, False]])
    content = mat_bytes(fields, compressed=compressed)
    expected = scipy.io.loadmat(io.BytesIO(content))["affNISTdata"][0, 0]
    found = read_struct(content, "affNISTdata", "a.mat")
    assert list(found) == list(expected.dtype.names)
    for name, values in found.items():
        assert values.dtype == expected[name].dtype
        assert np.array_equal(values, expected[name])


def test_what_is_no_array_of_real_numbers_is_none() -> None:
    cell = np.empty((1, 2), dtype=object)
    cell[:] = 1.0
    odd = {"text": "words", "cell": cell, "complex": np.array([[1j]]), "struct": {"inner": 1.0}}
    odd |= {"sparse": scipy.sparse.eye_array(3, format="csc"), "empty": np.zeros((0, 0)), "number": 3.0}
    found = read_struct(mat_bytes(odd), "affNISTdata", "a.mat")
    assert [name for name, values in found.items() if values is None] == ["text", "cell", "complex", "struct", "sparse"]
    assert found["empty"].shape == (0, 0)
    assert found["number"].item() == 3


def test_other_variables_are_passed_over() -> None:
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"before": np.arange(5), "affNISTdata": {"a": 1.0}, "after": "x"}, do_compression=True)
    assert list(read_struct(stream.getvalue(), "affNISTdata", "a.mat")) == ["a"]


def test_numbers_stored_narrower_than_their_class_are_widened() -> None:
    # MATLAB writes whole doubles as bytes; SciPy's writer never does, so the element is written by hand.
    wide = mat_bytes({"a": np.array([[1.0, 2.0, 3.0]])}, compressed=False)
    narrow = wide.replace(
        np.array([9, 24], "<u4").tobytes() + np.array([1.0, 2.0, 3.0]).tobytes(),
        (np.array([2, 3], "<u4").tobytes() + b"\1\2\3").ljust(32, b"\0"),
    )
    assert narrow != wide
    found = read_struct(narrow, "affNISTdata", "a.mat")["a"]
    assert (found.tolist(), found.dtype) == ([[1.0, 2.0, 3.0]], np.float64)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no MATLAB Level 5 header"),
        (b"\0" * 4000, "no MATLAB Level 5 header"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM", "another version"),
        (FILES[True][:-20], "truncated"),
        (FILES[False][:-20], "truncated"),
        (FILES[True][:128], "holds no variable affNISTdata"),
        (mat_bytes(FIELDS, name="other"), "holds no variable affNISTdata"),
        (FILES[True][:400] + b"XXXX" + FILES[True][404:], "compressed data are damaged"),
        (
            FILES[False].replace(np.array([1600, FEW], "<i4").tobytes(), np.array([1600, 5], "<i4").tobytes()),
            "1600 x 5",
        ),
        (FILES[False].replace(np.array([1600, FEW], "<i4").tobytes(), np.array([-4, -5], "<i4").tobytes()), "header"),
    ],
)
def test_a_broken_file_is_one_sentence(content: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        read_struct(content, "affNISTdata", "my.mat")
    assert str(caught.value).startswith("my.mat cannot be read as affNIST's MATLAB file: ")
    assert str(caught.value).endswith("use the synthetic set.")


def test_a_file_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matlab, "LIMIT", 1000)
    with pytest.raises(DataError, match="truncated or more than 1,000 bytes"):
        read_struct(FILES[True], "affNISTdata", "my.mat")


def read_anything(content: bytes) -> None:
    """Read `content`; whatever it is, the only exception is a DataError."""
    try:
        part = read_part(content, FEW, "my.mat")
    except DataError:
        return
    assert part.pixels.shape == (len(part.labels), 1600)
    assert part.labels.min() >= 0
    assert part.labels.max() <= 9


@settings(max_examples=300)
@given(compressed=st.booleans(), data=st.data())
def test_damaged_bytes_raise_nothing_but_dataerror(compressed: bool, data: st.DataObject) -> None:
    content = bytearray(FILES[compressed])
    front = st.integers(0, 900)  # headers and lengths stand there; further back there are only pixels
    for place in data.draw(st.lists(front | st.integers(0, len(content) - 1), min_size=1, max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    read_anything(bytes(content[: data.draw(st.none() | st.integers(0, len(content)))]))


@settings(max_examples=100)
@given(st.binary(max_size=400))
def test_any_bytes_raise_nothing_but_dataerror(tail: bytes) -> None:
    read_anything(tail)
    read_anything(FILES[True][:128] + tail)


def test_an_array_of_structs_is_refused() -> None:
    stream = io.BytesIO()
    two = np.zeros((1, 2), dtype=[("a", object)])
    scipy.io.savemat(stream, {"affNISTdata": two})
    with pytest.raises(DataError, match="not a 1 x 1 struct"):
        read_struct(stream.getvalue(), "affNISTdata", "my.mat")
