"""Small real runs on scikit-learn's digits: they need neither a network nor a named folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import PATIENCE

SIGNALS = Path(__file__).resolve().parents[1] / "signals"
PLAN = """
name: tiny
budget: reduced
seeds: [0, 1]
uci_digits: true
width: 0.0625
training: {{steps: {steps}, batch: 16, rate: {rate}, precision: float32}}
tasks:
  mnist:
    variants: [{variant}]
"""


class Tiny:
    """A plan of one cell and the commands on it, each a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def plan(self, variant: str = "capsnet-r3-recon", steps: int = 30, rate: float = 1e-3) -> Path:
        path = self.folder / "tiny.yaml"
        path.write_text(PLAN.format(variant=variant, steps=steps, rate=rate))
        return path

    def start(self, results: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "capsbench", *map(str, arguments)],
            env={**self.environment, "CAPSBENCH_RESULTS": str(self.folder / results), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, results: str, *arguments: object, **environment: str) -> tuple[int, str]:
        process = self.start(results, *arguments, **environment)
        said, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, said

    def signalled(self, results: str, at: int, name: str, *arguments: object, **environment: str) -> tuple[int, str]:
        """As `run`, saving after every step but the last, and signalled just before it saves after step `at`."""
        paths = os.pathsep.join([str(SIGNALS), *filter(None, [os.environ.get("PYTHONPATH")])])
        at_step = {"PYTHONPATH": paths, "SIGNAL_AT_STEP": f"{at} {name}", "CAPSBENCH_CHECKPOINT_SECONDS": "0"}
        return self.run(results, *arguments, **at_step, **environment)

    def run_folder(self, results: str, variant: str = "capsnet-r3-recon", seed: int = 0) -> Path:
        return self.folder / results / "tiny-digits" / "runs" / "mnist" / variant / f"seed-{seed}"


@pytest.fixture
def tiny(tmp_path: Path, request: pytest.FixtureRequest) -> Tiny:
    environment = {key: value for key, value in os.environ.items() if key != "CAPSBENCH_DATA"}
    environment |= {"CAPSBENCH_CACHE": str(tmp_path / "cache"), "CAPSBENCH_STAND_IN": "1"}
    environment |= {"TMPDIR": str(tmp_path)}  # a GPU's lock lies there: tests beside each other share the GPU
    if request.node.get_closest_marker("cuda") is None:
        environment["CAPSBENCH_DEVICE"] = "cpu"  # what is expected here is a CPU's, also where there is a GPU
    return Tiny(tmp_path, environment)
