"""Checkpoints: safetensors with a digest of their content, two kept, nothing ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from capsbench.errors import ResourceError
from capsbench.files import whole_file


class Checkpoint(NamedTuple):
    """Everything a run needs to go on as if it had never stopped."""

    tensors: dict[str, Tensor]  # model.*, optimiser.<moment>.*, sums
    meta: dict[str, Any]  # run digest, step, precision, threads, seconds so far


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    """Write tensors and JSON metadata as one safetensors file, whole or not at all; returns the content's digest.

    Raises:
        ResourceError: the disk is full or the folder is read-only.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    digest = tensor_digest(plain)
    data = save(plain, {"capsbench": json.dumps({**meta, "digest": digest})})
    try:
        with whole_file(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise ResourceError(
            f"{path} cannot be written: {error.strerror}; free the disk or move CAPSBENCH_RESULTS."
        ) from None
    return digest


def read_tensors(path: Path) -> Checkpoint:
    """Read a safetensors file and check its content against its digest.

    Raises:
        ValueError: the file is truncated or altered; FileNotFoundError: it is not there.
    """
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {}).get("capsbench", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error})") from None
    if not isinstance(meta, dict) or meta.get("digest") != tensor_digest(tensors):
        raise ValueError(f"{path} has been altered: its content does not match its digest")
    return Checkpoint(tensors, meta)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write `last.safetensors`; the one before it stays as `previous.safetensors`."""
    last, previous = folder / "last.safetensors", folder / "previous.safetensors"
    fresh = folder / "next.safetensors"
    write_tensors(fresh, checkpoint.tensors, checkpoint.meta)
    if last.exists():
        os.replace(last, previous)
    os.replace(fresh, last)


def load_checkpoint(folder: Path, run_digest: str, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint of this run (same config, source and data), or None.

    A truncated or altered one is passed over, said aloud. `next` is newest if the process died between two renames.
    """
    for name in ("next", "last", "previous"):
        path = folder / f"{name}.safetensors"
        try:
            checkpoint = read_tensors(path)
        except FileNotFoundError:
            continue
        except ValueError as error:
            say(f"{error}: going back to the checkpoint before it.")
            continue
        if checkpoint.meta.get("run") == run_digest:
            return checkpoint
    return None


def training_tensors(model: nn.Module, optimiser: torch.optim.Optimizer, sums: Tensor) -> dict[str, Tensor]:
    """Model, optimiser and running sums under flat names."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{key}.{name}"] = value
    return tensors | {"sums": sums}


def restore(checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer, sums: Tensor) -> None:
    """Put a checkpoint's tensors back where `training_tensors` found them."""
    tensors = checkpoint.tensors
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    state: dict[int, dict[str, Tensor]] = {}
    for index, (name, parameter) in enumerate(model.named_parameters()):
        keys = [k for k in tensors if k.startswith("optimiser.") and k.split(".", 2)[2] == name]
        if keys:
            state[index] = {k.split(".", 2)[1]: _laid_out_as(parameter, tensors[k]) for k in keys}
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    sums.copy_(tensors["sums"])


def _laid_out_as(parameter: Tensor, value: Tensor) -> Tensor:
    """`value` with its parameter's strides: fused Adam walks through both in the order of memory."""
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value) if value.shape == parameter.shape else value
