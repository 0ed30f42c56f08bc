"""Malformed .mat, npz, idx and checkpoint files: each is read right, or one sentence."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from malformed import ODD, many, one_sentence, torn

from capsbench.data.affnist_files import read_part
from capsbench.data.idx import read_idx
from capsbench.data.matlab import read_struct
from capsbench.errors import DataError
from capsbench.report.readers import load_arrays
from capsbench.training.checkpoint import read_tensors, write_tensors


def mat(fields: dict[str, Any], compressed: bool) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"affNISTdata": fields}, do_compression=compressed)
    return stream.getvalue()


FIELDS = {
    "afn": np.zeros((9, 2)), "afn_inv": np.zeros((9, 2)), "image": np.zeros((1600, 2), np.uint8),
    "id": np.arange(1.0, 3)[None], "label_one_of_n": np.eye(10, dtype=np.uint8)[:, [3, 4]],
    "label_int": np.array([[3, 4]], np.uint8), "human_readable_transform": np.zeros((6, 2)),
    "original_index": np.array([[1.0, 2.0]]),
}  # fmt: skip
MATS = [mat(FIELDS, True), mat(FIELDS, False)]


@many(1_500)
@given(data=st.data())
def test_mat_files_with_bytes_that_do_not_belong(data: st.DataObject) -> None:
    count(".mat files")
    content = data.draw(torn(data.draw(st.sampled_from(MATS))))
    try:
        part = read_part(content, 2, "my.mat")
    except DataError as error:
        one_sentence(error, "my.mat cannot be read as affNIST")
        return
    assert part.pixels.shape == (len(part.labels), 1600)


@many(500)
@given(fields=st.dictionaries(st.sampled_from(list(FIELDS)), ODD, min_size=1, max_size=8), compressed=st.booleans())
def test_mat_files_with_fields_that_do_not_belong(fields: dict[str, Any], compressed: bool) -> None:
    count(".mat files")
    try:
        content = mat({**FIELDS, **fields}, compressed)
    except (TypeError, ValueError, OverflowError, IndexError):  # SciPy cannot write it
        content = mat({**FIELDS, **dict.fromkeys(fields, "words")}, compressed)
    try:
        read_struct(content, "affNISTdata", "my.mat")
        read_part(content, 2, "my.mat")
    except DataError as error:
        one_sentence(error, "my.mat cannot be read as affNIST")


def npz() -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, labels=np.arange(5, dtype=np.uint8), scores=np.zeros((5, 10), np.float16))
    return stream.getvalue()


@many(500)
@given(content=torn(npz()))
def test_npz_files_with_bytes_that_do_not_belong(folder: Path, content: bytes) -> None:
    count("npz files")
    path = folder / "predictions.npz"
    path.write_bytes(content)
    try:
        load_arrays(path)
    except ValueError as error:
        one_sentence(error, "predictions.npz ")


@many(500)
@given(content=torn(bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5])))
def test_idx_files_with_bytes_that_do_not_belong(content: bytes) -> None:
    count("idx files")
    try:
        assert read_idx(content, "labels").dtype == np.uint8
    except DataError as error:
        one_sentence(error, "labels ")


@many(300)
@given(data=st.data())
def test_checkpoints_with_bytes_that_do_not_belong(folder: Path, data: st.DataObject) -> None:
    count("checkpoints")
    path = folder / "last.safetensors"
    write_tensors(path, {"model.w": torch.arange(4.0), "sums": torch.zeros(3)}, {"run": "x", "step": 1})
    content = path.read_bytes()
    changed = data.draw(torn(content))
    path.write_bytes(changed)
    try:
        found = read_tensors(path)
    except ValueError as error:
        one_sentence(error, str(path))
        return
    assert found.tensors["model.w"].tolist() == [0, 1, 2, 3]  # what was changed is not what is read


def test_an_archive_of_arrays_that_unpacks_to_too_much_is_refused(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("capsbench.report.readers.LIMIT", 1000)
    path = folder / "large.npz"
    np.savez_compressed(path, a=np.zeros(10_000))
    with pytest.raises(ValueError, match=r"unpacks to 80,.* bytes, more than 1,000"):
        load_arrays(path)


def test_an_array_that_no_memory_holds_is_a_sentence(folder: Path) -> None:
    path = folder / "huge.npz"
    header = b"\x93NUMPY\x01\x00" + b"\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % 10**15
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header.ljust(127) + b"\n")
    with pytest.raises(ValueError, match=r"huge\.npz is (truncated or is )?not what evaluation writes"):
        load_arrays(path)
