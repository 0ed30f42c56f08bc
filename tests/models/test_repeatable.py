"""A routing from outside whose figures would mean nothing is refused before it trains, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from capsbench.errors import RoutingError
from capsbench.models import build_model
from capsbench.models.build import as_spec
from capsbench.models.repeatable import build_and_try_twice, refuse_other_settings, torch_settings, try_twice

FILE = """
import torch
from torch import nn
from capsbench.routing import Routed, length, squash

CALLS = []

def good(votes):
    v = squash(votes.mean(1))
    return Routed(v, votes.new_full(votes.shape[:3], 0.1), length(v))

def noisy(votes):
    return good(votes + torch.randn_like(votes) * votes.std())

def counting(votes):
    CALLS.append(1)
    return good(votes * len(CALLS))

def across(votes):
    return good(votes - votes.mean(0))

def in_place(votes):
    votes *= 2
    return good(votes)

class Dropping(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, votes):
        return good(nn.functional.dropout(votes, 0.5, self.training))

class Normed(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, votes):
        return good(self.norm(votes.flatten(0, 1)).view_as(votes))

class Attribute(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.turn = torch.randn(dim, dim)

    def forward(self, votes):
        return good(votes @ self.turn)

class RunningMean(nn.Module):
    def __init__(self, outputs, persistent=False):
        super().__init__()
        self.register_buffer("mean", torch.zeros(outputs, 1), persistent=persistent)

    def forward(self, votes):
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * votes.detach().mean((0, 1, 3)).unsqueeze(1)
        return good(votes - (0 if self.training else self.mean))

def setting(votes):
    torch.set_float32_matmul_precision("medium")
    return good(votes)
"""


def model_of(folder: Path, name: str) -> torch.nn.Module:
    (folder / "repeated.py").write_text(FILE)
    variant = {"base": "capsnet-r3", "routing": f"repeated:{name}", "channels": 16, "primary_types": 2}
    return build_model(variant, 28, folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "noisy",
            "shown the same images again, in evaluation, it gives other poses; randomness, or state that outlives",
        ),
        ("counting", "shown the same images again, in evaluation, it gives other poses"),
        ("across", "in evaluation an image's poses depend on the other images of its batch"),
        ("in_place", "it changes its votes in place, which others read after it; change a copy."),
    ],
)
def test_figures_that_would_mean_nothing(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(RoutingError) as error:
        try_twice(model_of(tmp_path, name), 28)
    assert str(error.value).startswith(f"routing 'repeated:{name}': {words}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["good", "Dropping", "Normed"])
def test_what_is_random_or_looks_across_a_batch_in_training_alone_is_no_fault(tmp_path: Path, name: str) -> None:
    model = model_of(tmp_path, name)
    try_twice(model, 28)
    assert model.training


@pytest.mark.parametrize(("name", "mode"), [("Attribute", "evaluation"), ("RunningMean", "evaluation")])
def test_what_a_file_of_weights_does_not_hold_is_refused(tmp_path: Path, name: str, mode: str) -> None:
    model = model_of(tmp_path, name)
    words = f"^routing 'repeated:{name}': in {mode}, another model with its weights and buffers gives other poses"
    with pytest.raises(RoutingError, match=words):
        build_and_try_twice(model.spec, 28, tmp_path)


@pytest.mark.parametrize("name", ["good", "Dropping", "Normed", "RunningMean"])
def test_what_it_holds_is_no_fault(tmp_path: Path, name: str) -> None:
    options = {"routing_options": {"persistent": True}} if name == "RunningMean" else {}
    spec = model_of(tmp_path, name).spec.model_copy(update=options)
    build_and_try_twice(spec, 28, tmp_path)


def test_torch_s_settings_are_nobody_s_to_change(tmp_path: Path) -> None:
    before = torch_settings()
    refuse_other_settings(before, "routing 'repeated:good'")
    try:
        model_of(tmp_path, "setting")(torch.rand(1, 1, 28, 28))
        with pytest.raises(RoutingError, match="it changes the precision of float32 products"):
            refuse_other_settings(before, "routing 'repeated:setting'")
    finally:
        torch.set_float32_matmul_precision(before["the precision of float32 products"])
    refuse_other_settings(before, "routing 'repeated:good'")


CHANGES = {
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the default device": lambda: torch.set_default_device("meta"),
    "deterministic algorithms": lambda: torch.set_deterministic_debug_mode("warn"),
    "the number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "gradients": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "TF32": lambda: setattr(torch.backends.cudnn, "allow_tf32", not torch.backends.cudnn.allow_tf32),
    "cuDNN": lambda: setattr(torch.backends.cudnn, "benchmark", True),
}


@pytest.fixture
def _restored() -> Iterator[None]:
    """What the test has set torch to is as it was."""
    dtype, mode, threads = torch.get_default_dtype(), torch.get_deterministic_debug_mode(), torch.get_num_threads()
    gradients, cudnn = torch.is_grad_enabled(), torch.backends.cudnn
    tf32, benchmark = cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.set_default_dtype(dtype)
    torch.set_default_device(None)
    torch.set_deterministic_debug_mode(mode)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)
    torch.set_autocast_enabled("cpu", False)
    cudnn.allow_tf32, cudnn.benchmark = tf32, benchmark


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_that_decides_the_bits_of_other_rows_is_looked_at(name: str) -> None:
    before = torch_settings()
    CHANGES[name]()
    with pytest.raises(RoutingError, match=f"^routing 'mine': it changes {name} for the whole process"):
        refuse_other_settings(before, "routing 'mine'")


@pytest.mark.usefixtures("_restored")
def test_a_setting_that_a_routing_s_file_makes_when_it_is_imported_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "importing.py").write_text(FILE + "\ntorch.set_num_threads(torch.get_num_threads() + 1)\n")
    spec = as_spec({"base": "capsnet-r3", "routing": "importing:good", "channels": 16, "primary_types": 2})
    with pytest.raises(RoutingError, match=r"^routing 'importing:good': it changes the number of threads for the"):
        build_and_try_twice(spec, 28, tmp_path)


@pytest.mark.usefixtures("_restored")
def test_where_a_setting_makes_the_trial_fail_it_is_the_setting_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(FILE + "\ntorch.set_default_dtype(torch.float64)\n")
    spec = as_spec({"base": "capsnet-r3", "routing": "doubling:good", "channels": 16, "primary_types": 2})
    with pytest.raises(
        RoutingError, match=r"^routing 'doubling:good': it changes the default dtype .* now torch.float64"
    ):
        build_and_try_twice(spec, 28, tmp_path)


def test_a_file_that_goes_to_another_folder_is_refused_and_the_process_stays(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "leaving.py").write_text(FILE + "\nimport os\nos.chdir('away')\n")
    monkeypatch.chdir(tmp_path)
    spec = as_spec({"base": "capsnet-r3", "routing": "leaving:good", "channels": 16, "primary_types": 2})
    with pytest.raises(
        RoutingError, match=r"^routing 'leaving:good': it changes the folder of the whole process to .*/away,"
    ):
        build_and_try_twice(spec, 28, Path())  # relative, as of a plan that lies in the current folder
    assert Path.cwd() == tmp_path
