"""The idx reader: right on whole files, one DataError on anything else."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_data import idx

from capsbench.data.idx import read_idx, read_split
from capsbench.errors import DataError

IMAGES = idx(np.arange(3 * 28 * 28).reshape(3, 28, 28) % 251)
LABELS = idx(np.array([7, 0, 9]))


def test_labels_by_hand():
    labels = read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9]), "labels")
    assert labels.dtype == np.uint8
    assert labels.tolist() == [7, 0, 9]


def test_images_by_hand_are_row_major_and_big_endian():
    images = read_idx(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255]), "images")
    assert images.tolist() == [[[1, 2, 3], [4, 5, 255]]]
    images[0, 0, 0] = 9  # writable: torch warns of arrays that are not


def test_a_split():
    images, labels = read_split(IMAGES, LABELS, "images", "labels")
    assert images.shape == (3, 28, 28)
    assert images[2, 27, 27] == (3 * 28 * 28 - 1) % 251
    assert labels.dtype == np.int64
    assert labels.tolist() == [7, 0, 9]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "begins with nothing"),
        (b"\x1f\x8b\x08\x08", "begins with 1f8b0808"),  # a gzip file that nobody unpacked
        (b"\0\0\x08", "begins with 000008"),
        (bytes([0, 0, 0x0D, 1, 0, 0, 0, 1]) + bytes(4), "type 0x0d"),  # float
        (bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 1, 5]), "2 dimensions"),
        (bytes([0, 0, 8, 3, 0, 0, 0, 1]), "within its header, after 8 bytes of 16"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 0]), "no values"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0]), "10 bytes, but its header says 3, which are 11"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9, 9]), "12 bytes"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "4294967295 x 4294967295"),  # a header that promises 10^28 bytes
        (bytes([0, 0, 8, 1, 3, 0, 0, 0, 7, 0, 9]), "50,331,656"),  # little-endian
    ],
)
def test_malformed_files_are_named(data, what):
    with pytest.raises(DataError, match=what) as caught:
        read_idx(data, "some-file")
    assert str(caught.value).startswith("some-file ")


@pytest.mark.parametrize(
    ("images", "labels", "what"),
    [
        (IMAGES, idx(np.array([7, 10, 9])), "labels has the label 10 at place 1"),
        (IMAGES, idx(np.array([7, 9])), "images holds 3 images, but labels 2 labels"),
        (idx(np.zeros((3, 28, 27))), LABELS, "images holds 3 x 28 x 27"),
        (LABELS, LABELS, "images holds 3 values"),
        (IMAGES, IMAGES, "labels holds 3 x 28 x 28"),
    ],
)
def test_a_split_that_does_not_hold_together(images, labels, what):
    with pytest.raises(DataError, match=what):
        read_split(images, labels, "images", "labels")


@given(arrays(np.uint8, st.one_of(st.tuples(st.integers(1, 30)), st.tuples(*[st.integers(1, 5)] * 3))))
def test_every_array_comes_back(array):
    assert np.array_equal(read_idx(idx(array), "any"), array)


header = st.builds(
    lambda magic, sizes: magic + struct.pack(f">{len(sizes)}I", *sizes),
    st.sampled_from([b"\0\0\x08\x01", b"\0\0\x08\x03", b"\0\0\x08\x02", b"\0\0\x09\x01"]),
    st.lists(st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1)), max_size=4),
)


@given(st.one_of(st.binary(max_size=64), st.builds(bytes.__add__, header, st.binary(max_size=64))))
def test_whatever_the_bytes_only_data_errors_escape(data):
    try:
        array = read_idx(data, "any")
    except DataError:
        return
    assert data.endswith(array.tobytes())
    assert len(data) == 4 + 4 * array.ndim + array.size


@st.composite
def damaged(draw, whole: bytes) -> bytes:
    """`whole`, cut, lengthened, or with one byte changed; headers are hit as often as values."""
    place = draw(st.one_of(st.integers(0, 15), st.integers(0, len(whole) - 1))) % len(whole)
    how = draw(st.sampled_from(["cut", "change", "insert"]))
    if how == "cut":
        return whole[:place]
    middle = bytes([draw(st.integers(0, 255))])
    return whole[:place] + middle + whole[place + (how == "change") :]


@given(damaged(IMAGES), damaged(LABELS))
def test_damaged_splits_give_data_errors_or_three_images(images, labels):
    try:
        pixels, classes = read_split(images, labels, "images", "labels")
    except DataError:
        return
    assert pixels.shape == (3, 28, 28)  # only a pixel or a label was changed, which the checksums are there to see
    assert set(classes.tolist()) <= set(range(10))
