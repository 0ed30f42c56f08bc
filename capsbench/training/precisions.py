"""The precisions that a device computes in."""

from __future__ import annotations

import torch


def precisions(device: torch.device) -> tuple[str, ...]:
    """float32, and bf16 unless on a CPU for which oneDNN has none, such as one without AVX-512.

    There torch emulates it: a step of the paper's CapsNet takes minutes.
    """
    known = device.type == "cpu" and torch.backends.mkldnn.is_available()  # of a torch without oneDNN nobody can tell
    emulated = known and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return ("float32",) if emulated else ("float32", "bf16")
