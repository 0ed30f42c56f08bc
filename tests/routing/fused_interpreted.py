"""The fused kernels, run by Triton's interpreter on a CPU: collected by test_routing_fused.py in its own process.

Triton decides when it is imported whether it interprets, so TRITON_INTERPRET=1 is set before this file is read.
References are the plain passes in float64, which a trace makes every algorithm take.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from routing_cases import generator
from torch import Tensor

from capsbench.models.capsule_layer import CapsuleLayer
from capsbench.plan.variants import CapsNetSpec
from capsbench.routing import SQUASH_KINDS, build_routing, launch, vector_kernels
from capsbench.routing.fused import fused_length, fused_squash, routed_sum
from capsbench.routing.passes import normalise
from capsbench.routing.squash import length, squash
from capsbench.training import fusing

BOUND = 1e-5  # of the largest entry: some ten times what float32's rounding is seen to make of these sums
# of 17 inputs the last is alone in a block of dW, which has 8 or 16 of them where D, d and J are padded to 16 or to 8
BATCHES, INPUTS = (1, 3, 5), (1, 7, 17)
BATCHES_AND_INPUTS = list(itertools.product(BATCHES, INPUTS))
SIZES = list(itertools.product((1, 2, 10), (1, 5, 16), (1, 8)))  # J, D, d


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=generator(seed))


def assert_close(ours: list[Tensor], plain: list[Tensor], bound: float = BOUND) -> None:
    for n, (x, y) in enumerate(zip(ours, plain, strict=True)):
        assert x.shape == y.shape
        assert (x - y).abs().max() <= bound * y.abs().max(), n


def plain_sum(u: Tensor, weight: Tensor, V: Tensor, leaky: bool) -> tuple[Tensor, Tensor]:
    u_hat = torch.einsum("bid,ijde->bije", u, weight)
    b = (u_hat * V.unsqueeze(1)).sum(3)
    c = normalise(b.transpose(1, 2), "leaky" if leaky else "softmax").transpose(1, 2)
    return (c.unsqueeze(3) * u_hat).sum(1), c


def sums(way, given: list[Tensor], leaky: bool, kind: torch.dtype) -> list[Tensor]:
    """s, c and the gradients of u, W and V of a sum over s at random weights."""
    given = [x.to(kind).requires_grad_() for x in given]
    s, c = way(*given, leaky)[:2]
    return [s, c, *torch.autograd.grad((s * drawn(*s.shape, seed=9)).sum(), given)]


def assert_sum(B, I, J, D, d, leaky) -> None:  # noqa: E741
    given = [drawn(B, I, d), drawn(I, J, d, D, seed=1), drawn(B, J, D, seed=2, scale=0.3)]
    assert_close(sums(routed_sum, given, leaky, torch.float32), sums(plain_sum, given, leaky, torch.float64))


# the largest is among `all_odd_sizes`
@pytest.mark.parametrize(("J", "D", "d"), [size for size in SIZES if size != (10, 16, 8)])
def test_a_sum_of_every_odd_size(J, D, d) -> None:
    number = SIZES.index((J, D, d))
    assert_sum(*BATCHES_AND_INPUTS[number % 9], J, D, d, leaky=number >= 9)  # twice each of these: once leaky


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize(("J", "D", "d"), SIZES)
def test_a_sum_of_all_odd_sizes(turn, J, D, d) -> None:
    """Every J, D, d with every batch and every number of inputs; each two of these meet at six of the former.

    All nine with each take the interpreter three times as long, and show no two sizes beside one another that are new.
    """
    number = SIZES.index((J, D, d))
    assert_sum(BATCHES[turn], INPUTS[(turn + number) % 3], J, D, d, leaky=(turn + number) % 2 == 0)


@pytest.mark.slow
def test_a_sum_over_blocks_and_slices_of_images() -> None:
    count = launch.SLICE + 1
    assert count > 2 * launch.TILE // 16
    given = [drawn(count, 3, 8), drawn(3, 10, 8, 16, seed=1), drawn(count, 10, 16, seed=2, scale=0.3)]
    ours = sums(routed_sum, given, False, torch.float32)
    assert_close(ours, sums(plain_sum, given, False, torch.float64))
    alone = routed_sum(given[0][-1:], given[1], given[2][-1:])
    assert torch.equal(alone[0][0], ours[0][-1])  # an image's bits do not depend on those beside it


@pytest.mark.parametrize(("J", "leaky"), [(10, False), pytest.param(13, True, marks=pytest.mark.slow)])
def test_several_inputs_a_block_fewer_in_the_last_and_several_slices(J, leaky, monkeypatch) -> None:
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    monkeypatch.setattr(launch, "SLICE", 3)
    assert launch._inputs_a_program(torch.zeros(11, J, 4, 5), images=6) == 3
    assert_sum(7, 11, J, 5, 4, leaky)


@pytest.mark.parametrize(("J", "D", "d"), [(13, 5, 2), (32, 3, 8), (3, 5, 33)])  # 33: more columns than D has
def test_a_sum_of_many_outputs_and_of_wide_inputs(J, D, d) -> None:
    assert_sum(2, 3, J, D, d, leaky=True)


@pytest.mark.parametrize(
    ("J", "D", "d", "fit"),
    [(32, 2, 8, True), (33, 2, 1, False), (5, 2, 52, False), (1, 2, 65, False), (10, 513, 8, False)],
)
def test_what_is_unrolled_has_an_end(J, D, d, fit) -> None:
    assert launch.fits(torch.zeros(1, 1, d), torch.zeros(1, J, d, D)) is fit


def test_sums_after_one_another_add_their_gradients() -> None:
    u, weight, V = drawn(3, 7, 4), drawn(7, 3, 4, 5, seed=1), drawn(3, 3, 5, seed=2)

    def ours(u: Tensor, weight: Tensor) -> Tensor:
        _, none, u, weight = routed_sum(u, weight, V, keep=False)  # a sum that nothing is made of
        assert none is None
        first, _, u, weight = routed_sum(u, weight, None)
        return first * routed_sum(u, weight, first)[0]

    def plain(u: Tensor, weight: Tensor) -> Tensor:
        first = torch.einsum("bid,ijde->bje", u, weight) / 3
        return first * plain_sum(u, weight, first, False)[0]

    def gradients(way, kind: torch.dtype) -> list[Tensor]:
        given = [x.to(kind).requires_grad_() for x in (u, weight)]
        return list(torch.autograd.grad((way(*given) * drawn(3, 3, 5, seed=9)).sum(), given))

    assert_close(gradients(ours, torch.float32), gradients(plain, torch.float64))


def test_the_same_bits_twice_and_of_w_in_another_layout() -> None:
    given = [drawn(3, 9, 4), drawn(9, 3, 4, 5, seed=1), drawn(3, 3, 5, seed=2)]
    first, second = (sums(routed_sum, given, False, torch.float32) for _ in range(2))
    given[1] = given[1].to(memory_format=torch.channels_last)
    for others in (second, sums(routed_sum, given, False, torch.float32)):
        assert all(torch.equal(x, y) for x, y in zip(first, others, strict=True))
    assert_close(first, sums(plain_sum, given, False, torch.float64))


@pytest.mark.parametrize("leaky", [False, True])
def test_large_values_stay_finite_and_right(leaky) -> None:
    # whole numbers: logits of some 10^6 are exact in float32, so couplings of 0 and 1 are the reference's
    given = [x.sign() * 64 for x in (drawn(3, 7, 4), drawn(7, 3, 4, 5, seed=1), drawn(3, 3, 5, seed=2))]
    ours, plain = sums(routed_sum, given, leaky, torch.float32), sums(plain_sum, given, leaky, torch.float64)
    assert ours[1].max() == 1
    assert all(x.isfinite().all() for x in ours)
    assert_close(ours, plain)


@pytest.mark.parametrize("name", ["dynamic", "leaky", "replace", "kmeans"])
def test_zero_votes_give_zero_and_no_gradient_that_is_not_finite(name) -> None:
    routed, gradients = answers(name, 3, {"bias": 0.0}, [torch.zeros(2, 3, 4), drawn(3, 2, 4, 5)], torch.float32)
    assert (routed[0] == 0).all()
    assert all(x.isfinite().all() for x in gradients)


def answers(name, iterations, options, given, kind) -> tuple[list[Tensor], list[Tensor]]:
    """Poses, couplings, scores; gradients of u, W and the bias: fused in float32, by the plain passes in float64."""
    u, weight = (x.to(kind).requires_grad_() for x in given)
    inputs, outputs, _, dim = weight.shape
    layer = build_routing(name, inputs, outputs, dim, **{"bias": 0.1, **options})
    assert layer.fusible()
    if kind == torch.float32:
        routed = layer.fused(u, weight, iterations)
    else:
        routed = layer.to(kind)(torch.einsum("bid,ijde->bije", u, weight), u, iterations, trace=True)
    loss = (routed.poses * drawn(*routed.poses.shape, seed=9)).sum() + routed.scores.square().sum()
    return list(routed[:3]), list(torch.autograd.grad(loss, [u, weight, layer.bias]))


def assert_plain(name, iterations, options) -> None:
    given = [drawn(3, 7, 4), drawn(7, 3, 4, 5, seed=1, scale=0.5)]
    (ours, gradients), (plain, expected) = (
        answers(name, iterations, options, given, kind) for kind in (torch.float32, torch.float64)
    )
    assert_close([*ours, *gradients], [*plain, *expected])


@pytest.mark.parametrize("iterations", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["dynamic", "leaky", "replace", "kmeans", "optimised", "uniform"])
def test_an_algorithm_is_its_plain_passes(name, iterations) -> None:
    assert_plain(name, iterations, {"alpha": 0.5} if name == "optimised" else {})


@pytest.mark.parametrize("squash", SQUASH_KINDS)
def test_every_squash(squash) -> None:
    assert_plain("dynamic", 2, {"squash": squash, "normaliser": "leaky"})


def layer_of(**options) -> CapsuleLayer:
    spec = CapsNetSpec.model_validate({"model": "capsnet", **options})
    torch.manual_seed(0)
    layer = CapsuleLayer(types=2, places=4, child_dim=4, outputs=3, dim=5, options=spec)
    torch.nn.init.normal_(layer.weight, std=0.5)
    return layer


def test_a_layer_goes_the_way_that_it_is_told() -> None:
    layer, u = layer_of(), drawn(3, 8, 4)
    plain = layer(u)
    layer.fused = True
    fused, traced = layer(u), layer(u, trace=True)
    assert not torch.equal(plain.couplings, fused.couplings)  # two ways, else nothing is tested here
    assert_close([fused.poses, fused.couplings], [plain.poses, plain.couplings])
    assert torch.equal(traced.poses, layer_of()(u, trace=True).poses)


@pytest.mark.parametrize("options", [{"share": "type"}, {"detach_inner": True}, {"routing": "em-vector"}])
def test_what_cannot_be_fused_goes_the_plain_way(options) -> None:
    layer, u = layer_of(**options), drawn(3, 8, 4)
    plain = layer(u).poses
    layer.fused = True
    assert not layer.fusible()
    assert torch.equal(layer(u).poses, plain)
    assert fusing.choose_routing(layer, torch.device("cuda"), pytest.fail) == {}


def test_a_run_takes_fused_routing_on_a_gpu_and_none_elsewhere(monkeypatch) -> None:
    monkeypatch.setattr(fusing, "TRIED", FEW)
    layer = layer_of()
    assert fusing.choose_routing(layer, torch.device("mps"), pytest.fail) == {}
    assert not layer.fused
    assert fusing.choose_routing(layer, torch.device("cuda"), pytest.fail) == {"routing": "fused"}
    assert layer.fused
    with fusing.plain_routing(layer):
        assert not layer.fused
    assert layer.fused


FEW = ((5, 7),)  # images and inputs that a layer is tried with: the interpreter is slow


def test_a_layer_is_tried_with_several_inputs_a_block_and_a_second_slice() -> None:
    images, inputs = fusing.TRIED[-1]
    assert images > launch.SLICE > launch.TILE // 16
    for each in (launch._inputs_a_program(torch.zeros(inputs, 10, 8, 16), n * launch.SLICE) for n in (1, 2)):
        assert each > 1
        assert inputs % each > 0


def wrong(*given, **_):
    s, c = WEIGHTED(*given)
    return s * 1.001, c


def broken(*_, **__):
    raise RuntimeError("no ptxas\nmore")


WEIGHTED = launch.weighted_sums


@pytest.mark.parametrize(("kernel", "word"), [(wrong, "differs here"), (broken, "RuntimeError: no ptxas)")])
def test_a_run_says_once_why_it_does_not(kernel, word, monkeypatch) -> None:
    layer, said = layer_of(), []
    layer.fused = True
    monkeypatch.setattr(fusing, "TRIED", FEW)
    monkeypatch.setattr(launch, "weighted_sums", kernel)
    assert fusing.choose_routing(layer, torch.device("cuda"), said.append) == {"routing": "plain"}
    assert len(said) == 1
    assert word in said[0]
    assert not layer.fused


SIZES_OF_VECTORS = [(1, 1), (3, 2), (40, 5), (7, 16), (1100, 1)]  # count, D: of one program and of more


@pytest.mark.parametrize("scale", [0.0, 1e-33, 1e-20, 1.0, 1e13, 1e25])
@pytest.mark.parametrize("kind", ["hinton", "half"])
def test_a_fused_squash_is_the_plain_one(kind: str, scale: float) -> None:
    assert kind in vector_kernels.KINDS
    for count, dim in SIZES_OF_VECTORS:
        assert_vectors(lambda x: fused_squash(x, kind), lambda x: squash(x, kind=kind), count, dim, scale)


@pytest.mark.parametrize("scale", [0.0, 1e-33, 1e-20, 1.0, 1e13, 1e25])
def test_a_fused_length_is_the_plain_one(scale: float) -> None:
    for count, dim in SIZES_OF_VECTORS:
        assert_vectors(fused_length, length, count, dim, scale)


def assert_vectors(ours, plain, count: int, dim: int, scale: float) -> None:
    given = [drawn(count, dim, scale=scale).to(kind).requires_grad_() for kind in (torch.float32, torch.float64)]
    results = [way(x) for way, x in zip((ours, plain), given, strict=True)]
    of = drawn(*results[0].shape, seed=9)
    gradients = [torch.autograd.grad(result, x, of.to(x.dtype))[0] for result, x in zip(results, given, strict=True)]
    # along a long vector a squash's gradient is what two terms of this size leave
    factors = results[1].reshape(count, -1).norm(dim=1) / given[1].norm(dim=1)
    terms = float(factors.nan_to_num().max() * of.abs().max())
    for (x, y), size in zip((results, gradients), (0.0, terms), strict=True):
        assert x.isfinite().all()
        assert (x - y).abs().max() <= BOUND * y.abs().max().clamp_min(size) + torch.finfo(torch.float32).tiny


def test_vectors_that_are_not_contiguous_are_squashed_too() -> None:
    s = drawn(4, 6, 5).transpose(1, 2)
    assert_close([fused_squash(s, "hinton")], [squash(s, kind="hinton")])
    assert fused_squash(s, "exp").equal(squash(s, kind="exp"))  # there is no kernel for it
