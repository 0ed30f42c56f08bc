"""Fused routing: its kernels interpreted on a CPU, compiled for a GPU that need not be there, run on one that is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from with_triton import all_pass, compiled, interpreted

from capsbench.evaluation.memory import peak_bytes
from capsbench.models.capsule_layer import CapsuleLayer
from capsbench.plan.variants import CapsNetSpec
from capsbench.routing import build_routing
from capsbench.routing.fused import fused_length, fused_squash
from capsbench.training import fusing

HERE = Path(__file__).parent


def test_the_kernels_give_what_the_plain_passes_give() -> None:
    all_pass(HERE / "fused_interpreted.py", "not slow")


@pytest.mark.slow
def test_the_kernels_give_it_at_all_odd_sizes() -> None:
    all_pass(HERE / "fused_interpreted.py", "slow")


@pytest.mark.slow
def test_a_step_starts_few_kernels_that_wait_for_one_another() -> None:
    said = interpreted(HERE / "fused_operators.py")
    plain, fused, _ = (sum(map(int, re.findall(r"\d+", line))) for line in said.splitlines())
    assert fused <= 130
    assert fused < plain / 3


def test_the_kernels_compile_for_a_gpu_without_atomics_and_tf32() -> None:
    said = [line.split() for line in compiled(HERE / "fused_compiled.py").splitlines()]
    assert [name for name, *_ in said] == ["_sums"] * 2 + ["_gradients", "_of_W"] + ["_squash"] * 2 + ["_length"] * 2
    assert all(words[:3] == ["fma", "no-atomics", "no-tf32"] for _, *words in said)
    for _, *_, barriers, registers, spilled, loop in said[:4]:  # those of routing wait for no other warp, and hold all
        assert barriers == "no-barriers"
        assert int(registers) <= 255
        assert int(spilled) <= 256, "what a thread holds has outgrown its registers"
        assert int(loop) > 0


def test_where_triton_is_missing_a_run_says_so_and_takes_the_plain_way(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "capsbench.routing.launch", None)  # its import fails
    monkeypatch.setitem(sys.modules, "triton", None)
    layer, said = layer_of("dynamic", 8).to("meta"), []  # in the place of a GPU
    layer.fused = True
    assert fusing.choose_routing(layer, torch.device("cuda"), said.append) == {"routing": "plain"}
    assert said == ["Routing keeps its votes in memory, since fused routing needs Triton, which cannot be imported."]
    assert not layer.fused


def layer_of(routing: str, inputs: int) -> CapsuleLayer:
    spec = CapsNetSpec(model="capsnet", routing=routing)
    layer = CapsuleLayer(types=inputs, places=1, child_dim=8, outputs=10, dim=16, options=spec)
    torch.manual_seed(0)
    torch.nn.init.normal_(layer.weight, std=0.1)
    return layer


@pytest.mark.cuda
@pytest.mark.parametrize("inputs", [1152, 3200, 4608])
def test_on_a_gpu_it_is_exact_and_holds_a_tenth(inputs) -> None:
    layer = layer_of("dynamic", inputs).to("cuda")
    plain = build_routing("dynamic", inputs, 10, 16)
    u = 0.3 * torch.randn(128, inputs, 8, generator=torch.Generator().manual_seed(1)).to("cuda")
    of_poses = torch.randn(128, 10, 16, generator=torch.Generator().manual_seed(2)).to("cuda")

    def fused() -> list[torch.Tensor]:
        given = u.clone().requires_grad_()
        poses = layer(given).poses
        return [poses.detach(), *torch.autograd.grad(poses, [given, layer.weight], of_poses)]

    def materialised(kind: torch.dtype = torch.float32) -> list[torch.Tensor]:
        given = [x.detach().to(kind).requires_grad_() for x in (u, layer.weight)]
        poses = plain(torch.einsum("bid,ijde->bije", *given), iterations=3).poses
        return [poses.detach(), *torch.autograd.grad(poses, given, of_poses.to(kind))]

    layer.fused = True
    ours = fused()
    assert all(torch.equal(x, y) for x, y in zip(ours, fused(), strict=True))
    for x, y in zip(ours, materialised(torch.float64), strict=True):
        assert (x - y).abs().max() <= 1e-4 * y.abs().max()
    del ours, x, y
    assert 10 * peak_bytes(fused, torch.device("cuda")) <= peak_bytes(materialised, torch.device("cuda"))


@pytest.mark.cuda
@pytest.mark.parametrize("routing", ["dynamic", "leaky", "replace", "kmeans", "optimised", "uniform"])
def test_a_gpu_takes_it(routing) -> None:
    layer = layer_of(routing, 1152).to("cuda")
    assert fusing.choose_routing(layer, torch.device("cuda"), pytest.fail) == {"routing": "fused"}


@pytest.mark.cuda
def test_on_a_gpu_what_is_not_a_number_stays_so() -> None:
    for bad in (float("nan"), float("inf")):
        s = torch.ones(3, 8, device="cuda")
        s[1, 2] = bad
        for kind in ("hinton", "half"):
            assert fused_squash(s, kind).isnan().any(1).tolist() == [False, True, False]
        assert fused_length(s).isfinite().tolist() == [True, False, True]
