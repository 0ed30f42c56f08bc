"""Fused routing on a CPU: as exact as float32 is, the same bits whatever the threads, plain where nothing compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from tools import unavailable
from torch import Tensor

from capsbench.models.capsule_layer import CapsuleLayer
from capsbench.plan.variants import CapsNetSpec
from capsbench.routing import compiled, cpu_fused, resolve
from capsbench.routing.fused import fused_squash, route_fused, routed_sum
from capsbench.routing.squash import squash
from capsbench.training import fusing

SIZES = [  # B, I, J, d, D
    (128, 1152, 10, 8, 16),
    (5, 37, 10, 8, 16),
    (17, 3, 10, 8, 16),
    (33, 50, 3, 4, 5),
    (1, 7, 2, 1, 1),
    (16, 20, 12, 6, 32),
    (40, 100, 17, 16, 24),
]
ROUTINGS = [("dynamic", {}), ("dynamic", {"squash": "half", "normaliser": "leaky"}), ("leaky", {}), ("replace", {}),
            ("kmeans", {"squash": "exp"})]  # fmt: skip


@pytest.fixture(autouse=True)
def compiles() -> None:
    if (reason := cpu_fused.why_not()) is not None:
        unavailable(f"routing on a CPU {reason}")


CPU = torch.device("cpu")


def drawn(size: tuple[int, ...], scale: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """u, W and a gradient of the poses."""
    batch, inputs, outputs, d, dim = size
    draw = torch.Generator().manual_seed(sum(size))
    u = scale * torch.randn(batch, inputs, d, generator=draw)
    return (
        u,
        0.3 * torch.randn(inputs, outputs, d, dim, generator=draw),
        torch.randn(batch, outputs, dim, generator=draw),
    )


def fused(routing: str, options: dict, u: Tensor, W: Tensor, of_poses: Tensor) -> list[Tensor]:
    u, W = u.clone().requires_grad_(), W.clone().requires_grad_()
    assert cpu_fused.fits(u, W)
    routed = route_fused(resolve(routing), u, W, 3, options)
    return [routed.poses, routed.couplings, *torch.autograd.grad((routed.poses * of_poses).sum(), [u, W])]


def plainly(routing: str, options: dict, u: Tensor, W: Tensor, of_poses: Tensor) -> list[Tensor]:
    u, W = u.double().requires_grad_(), W.double().requires_grad_()
    routed = resolve(routing)(torch.einsum("bid,ijde->bije", u, W), 3, **options)
    return [routed.poses, routed.couplings, *torch.autograd.grad((routed.poses * of_poses).sum(), [u, W])]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("routing", "options"), ROUTINGS, ids=str)
def test_as_exact_as_float32_is(size, routing: str, options: dict) -> None:
    given = drawn(size)
    for mine, exact in zip(fused(routing, options, *given), plainly(routing, options, *given), strict=True):
        assert mine.dtype == torch.float32
        assert ((mine - exact).abs().max() / exact.abs().max()) < 3e-6


def summed(u: Tensor, W: Tensor, V: Tensor) -> list[Tensor]:
    """s and c at V, and the gradients of u, W and V."""
    given = [x.clone().requires_grad_() for x in (u, W, V)]
    s, c, *_ = routed_sum(*given)
    return [s, c, *torch.autograd.grad((s * s).sum(), given)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_same_bits_with_any_number_of_threads_and_whatever_stands_beside_an_image(size) -> None:
    u, W, V = drawn(size)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = summed(u, W, V)
        torch.set_num_threads(3)
        assert all(map(torch.equal, alone, summed(u, W, V)))
    finally:
        torch.set_num_threads(threads)
    for some in (slice(0, 1), slice(size[0] // 2, None)):
        s, c, of_u, _, of_V = summed(u[some], W, V[some])
        assert all(map(torch.equal, (s, c, of_u, of_V), (alone[n][some] for n in (0, 1, 2, 4))))


def test_large_logits_and_what_is_no_number() -> None:
    u, W, of_poses = drawn((18, 9, 10, 8, 16), scale=200.0)
    found, exact = fused("replace", {}, u, W, of_poses), plainly("replace", {}, u, W, of_poses)
    assert ((found[0] - exact[0]).abs().max() / exact[0].abs().max()) < 1e-4
    assert found[1].sum(2).allclose(torch.ones(()))
    u[7, 3, 2] = float("nan")
    poses, couplings, *_ = fused("dynamic", {}, u, W, of_poses)
    assert poses[7].isnan().all()
    assert couplings[7, 3].isnan().all()
    others = torch.arange(18) != 7
    assert poses[others].isfinite().all()


@pytest.mark.parametrize("kind", ["hinton", "half", "tanh"])
@pytest.mark.parametrize("dim", [1, 3, 8, 16])
def test_squash_and_its_gradient(kind: str, dim: int) -> None:
    x = torch.randn(6, 50, dim, generator=torch.Generator().manual_seed(dim))
    x = x * torch.tensor([0.0, 1e-25, 1e-3, 1.0, 1e4, 1e20]).view(6, 1, 1)
    of_v = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    answers = []
    for shorten, given in ((fused_squash, x.clone()), (squash, x.clone()), (squash, x.double())):
        given.requires_grad_()
        v = shorten(given, kind=kind)
        answers.append([v, *torch.autograd.grad(v, given, of_v.to(v))])
    for mine, plain, exact in zip(*answers, strict=True):
        for row, other, true in zip(mine, plain, exact, strict=True):
            largest = true.abs().max().clamp_min(1e-30)
            assert (row - true).abs().max() <= max(1e-6 * largest, 1.5 * (other - true).abs().max())


def test_squash_passes_on_what_is_no_number() -> None:
    x = torch.ones(4, 8)
    x[1, 3], x[2, 0] = float("nan"), float("inf")
    v = fused_squash(x)
    assert v[[0, 3]].isfinite().all()
    assert v[1].isnan().all()
    assert v[2].isnan().any()


def layer_of(routing: str = "dynamic", **options) -> CapsuleLayer:
    spec = CapsNetSpec(model="capsnet", routing=routing, **options)
    layer = CapsuleLayer(types=4, places=3, child_dim=8, outputs=10, dim=16, options=spec)
    torch.nn.init.normal_(layer.weight, std=0.1, generator=torch.Generator().manual_seed(0))
    return layer


def test_a_layer_is_set_to_it_and_routes_alike() -> None:
    layer, u = layer_of(), torch.rand(3, 12, 8)
    plain = layer(u)
    assert fusing.choose_routing(layer, CPU, pytest.fail) == {"routing": "fused"}
    assert layer.fused
    assert torch.allclose(layer(u).poses, plain.poses, atol=1e-6)
    assert fusing.choose_routing(layer_of(detach_inner=True), CPU, pytest.fail) == {}


def test_where_no_kernel_is_a_layer_that_is_set_to_it_goes_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, u = layer_of(), torch.rand(3, 12, 8)
    plain = layer(u)
    layer.fused = True
    monkeypatch.setattr(cpu_fused, "why_not", lambda: "needs a C compiler")
    monkeypatch.setitem(sys.modules, "capsbench.routing.launch", None)  # nor is there Triton: its import fails
    assert torch.equal(layer(u).poses, plain.poses)


def test_one_that_is_too_large_or_differs_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    layer = layer_of()
    monkeypatch.setattr(cpu_fused, "MOST", 100)
    assert fusing.choose_routing(layer, CPU, said.append) == {"routing": "plain"}
    assert said.pop().endswith("since fused routing takes no capsules like these.")
    monkeypatch.undo()
    monkeypatch.setattr(cpu_fused, "SQUASH", cpu_fused.SQUASH.replace("f * s[e]", "f * s[e] * 1.01f"))
    assert fusing.choose_routing(layer, CPU, said.append) == {"routing": "plain"}
    assert "differs here from the plain way by 0.0" in said.pop()
    assert not layer.fused


def test_gradients_that_autograd_hands_expanded_and_a_V_in_bf16() -> None:
    u, W, V = drawn((5, 9, 10, 8, 16))
    given = [x.clone().requires_grad_() for x in (u, W, V)]
    s, _, of_u, of_W = routed_sum(*given)
    found = torch.autograd.grad(s.sum() + of_u.sum() + of_W.sum(), given)
    s, *_ = routed_sum(*given)
    expected = torch.autograd.grad(s.sum(), given)
    for mine, other, more in zip(found, expected, (1, 1, 0), strict=True):
        assert torch.allclose(mine, other + more, atol=1e-5)
    low = V.bfloat16()
    assert torch.equal(routed_sum(u, W, low)[0], routed_sum(u, W, low.float())[0])


REASONS: list[tuple[dict[str, str], str]] = [
    ({"CC": "/bin/false"}, r"does not compile here (/bin/false: )"),
    ({"CC": "no-such-compiler"}, "does not compile here (no-such-compiler: [Errno 2]"),
    ({"PATH": "/nowhere"}, "needs a C compiler (gcc, cc, clang or what CC names), and there is none"),
    ({"CC": "gcc -fno-such-flag"}, "does not compile here (gcc -fno-such-flag: gcc: error: unrecognized"),
    ({"TRITON_INTERPRET": "1"}, "is interpreted by Triton here"),
]
ASKED = """
import json, os, sys
from capsbench.routing import cpu_fused
for environment in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.environ.update(environment)
        print(json.dumps(cpu_fused.why_not()), flush=True)
        os._exit(0)
    os.wait()
"""


def test_where_nothing_compiles_it_says_why() -> None:
    """In a process for each reason, as it is found once in each; all of one, which has imported torch for them."""
    command = [sys.executable, "-c", ASKED, json.dumps([environment for environment, _ in REASONS])]
    given = {key: value for key, value in os.environ.items() if key != "CC"}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    for (environment, reason), why in zip(REASONS, said, strict=True):
        assert why.startswith(reason), environment


def test_what_was_compiled_is_gone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(tmp_path))
    seven = compiled.library("int seven(void) { return SEVEN; }", "-DSEVEN=7").seven
    assert seven() == 7
    assert list(tmp_path.iterdir()) == []


def test_nowhere_to_write_and_no_time_are_reasons_that_are_found_once(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(tmp_path / "nowhere"))
    for _ in range(2):
        with pytest.raises(compiled.CompilerError, match=r"does not compile here \(gcc: .*No such file"):
            compiled.library("int eight;")
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(compiled.CompilerError, match="No such file"):  # what was found stays
        compiled.library("int eight;")
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 5\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr(compiled, "SECONDS", 0.2)
    with pytest.raises(compiled.CompilerError, match=r"slow took over 0.2 s"):
        compiled.library("int nine;")


def test_the_next_compiler_is_tried(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiled, "COMPILERS", ("false", "no-such-compiler", "gcc"))
    assert compiled.library("int ten(void) { return 10; }").ten() == 10
