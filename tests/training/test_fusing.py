"""A run that goes on from a checkpoint routes as it began, unless that cannot be done here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from capsbench.training import checkpoint
from capsbench.training.run import _kept_on_resume


@pytest.mark.parametrize(
    ("here", "before", "taken"),
    [("fused", "fused", "fused"), ("fused", "plain", "plain"), ("plain", "fused", "plain"), ("fused", None, "fused")],
)
def test_a_run_goes_on_as_it_began(here: str, before: str | None, taken: str, monkeypatch) -> None:
    meta = {"threads": 2, "device": "cuda:1"} | ({"routing": before} if before else {})
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *_: SimpleNamespace(meta=meta))
    kept = _kept_on_resume(Path("run"), "digest", {"routing": here, "threads": 1, "device": "cuda:0"})
    assert kept == {"routing": taken, "threads": 2, "device": "cuda:0"}  # whichever device it goes on on
    assert _kept_on_resume(Path("run"), "digest", {"threads": 1}) == {"threads": 2}  # on a CPU
