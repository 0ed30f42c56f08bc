"""Which checkpoint is the newest where a process died while it saved, and what the digest of tensors covers."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from capsbench.errors import ResourceError
from capsbench.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, tensor_digest, write_tensors


def at_step(step: int) -> Checkpoint:
    return Checkpoint({"weight": torch.full((3,), float(step))}, {"run": "of this run", "step": step})


def newest(folder: Path) -> int | None:
    """The step of the checkpoint that is taken up; fails where anything is said."""
    found = load_checkpoint(folder, "of this run", pytest.fail)
    if found is None:
        return None
    assert torch.equal(found.tensors["weight"], at_step(found.meta["step"]).tensors["weight"])
    return int(found.meta["step"])


@pytest.mark.parametrize("renamed", [False, True], ids=["before the first rename", "between the two"])
def test_a_checkpoint_that_was_written_but_not_yet_renamed_is_the_newest(tmp_path: Path, renamed: bool) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, at_step(step))
    assert newest(tmp_path) == 2
    write_tensors(tmp_path / "next.safetensors", *at_step(3))  # as `save_checkpoint` does first
    if renamed:
        (tmp_path / "last.safetensors").replace(tmp_path / "previous.safetensors")
    assert newest(tmp_path) == 3
    save_checkpoint(tmp_path, at_step(4))  # whoever goes on leaves no older one in its way
    assert newest(tmp_path) == 4


def test_without_the_last_checkpoint_the_one_before_it_is_taken(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    for step in (1, 2):
        save_checkpoint(tmp_path, at_step(step))
    (tmp_path / "last.safetensors").unlink()
    assert newest(tmp_path) == 1


def test_a_checkpoint_of_another_run_is_none(tmp_path: Path) -> None:
    """As after an edit of the plan: its weights were trained otherwise."""
    save_checkpoint(tmp_path, at_step(1))
    assert load_checkpoint(tmp_path, "of another run", pytest.fail) is None


def test_a_checkpoint_that_has_been_altered_is_passed_over_aloud(tmp_path: Path) -> None:
    """By one bit of its weights: a file that is whole in every other way."""
    for step in (1, 2):
        save_checkpoint(tmp_path, at_step(step))
    last, said = tmp_path / "last.safetensors", []
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    found = load_checkpoint(tmp_path, "of this run", said.append)
    assert found is not None
    assert found.meta["step"] == 1
    assert said == [
        f"{last} has been altered: its content does not match its digest: going back to the checkpoint before it."
    ]


def test_a_disk_that_fills_up_while_tensors_are_written_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.safetensors"
    write_tensors(path, *at_step(1))
    before, write = path.read_bytes(), Path.write_bytes

    def fills_up(self: Path, data: bytes) -> int:
        write(self, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fills_up)
    with pytest.raises(ResourceError, match="cannot be written: No space left on device; free the disk or move"):
        write_tensors(path, *at_step(2))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.zeros(3, 2)},
        {"a": torch.zeros(6)},
        {"a": torch.zeros(2, 3, dtype=torch.int32)},
        {"b": torch.zeros(2, 3)},
        {"a": torch.zeros(2, 3), "b": torch.zeros(0)},
        {"a": torch.tensor([[0.0, 0, 0], [0, 0, 1]])},
    ],
    ids=["shape", "dimensions", "dtype", "name", "one more", "value"],
)
def test_tensors_that_differ_in_anything_have_another_digest(other: dict[str, torch.Tensor]) -> None:
    """The bytes of all but the last are the same: 24 zeros."""
    assert tensor_digest(other) != tensor_digest({"a": torch.zeros(2, 3)})


def test_the_digest_is_of_the_content_not_of_the_order_in_memory() -> None:
    one, two = torch.arange(6.0).view(2, 3), torch.ones(2)
    across = one.t().contiguous().t()  # the same matrix, column by column
    assert tensor_digest({"a": one, "b": two}) == tensor_digest({"b": two, "a": across})
