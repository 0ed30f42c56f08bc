"""On a CUDA GPU: taken unasked, the same bits twice for every kind of model, stopped and resumed; captured steps."""

from __future__ import annotations

import json
import signal
import warnings

import pytest
import torch
import torch.nn.functional as F
from small_steps import VARIANTS, go_on, small_step, tasks_of
from small_steps import bits as small_bits

from capsbench.models import gpu_tiles
from capsbench.models.convolution import Convolution
from capsbench.training.capture import CapturedStep, captured
from capsbench.training.checkpoint import read_tensors, tensor_digest
from capsbench.training.device import set_up

pytestmark = pytest.mark.cuda


def bits(folder) -> str:
    return tensor_digest(read_tensors(folder / "weights.safetensors").tensors)


def fail(said: str) -> None:
    raise AssertionError(said)


CONVOLUTIONS = {  # channels in and out, kernel, stride, padding, pixels of a side
    "primary36": (256, 256, 9, 2, 0, 28),  # MultiMNIST's
    "primary40": (256, 256, 9, 2, 0, 32),  # affNIST's
    "cnn40": (256, 256, 5, 1, 2, 40),
    "primary": (256, 256, 9, 2, 0, 20),
    "conv1": (1, 256, 9, 1, 0, 28),
    "cnn1": (1, 256, 5, 1, 2, 28),
    "cnn2": (256, 256, 5, 1, 2, 28),
    "cnn3": (256, 128, 5, 1, 2, 28),
}


def assert_full_float32(convolution: torch.nn.Conv2d, images: torch.Tensor) -> None:
    """Values and gradients of four images of the batch are those of float64 products, which ask cuDNN for nothing.

    TF32 errs by some 4e-4 of the largest entry, float32 by some 1e-6.
    """
    few = images[:4].detach().double().requires_grad_()
    weight = convolution.weight.detach().double().requires_grad_()
    patches = F.unfold(few, convolution.kernel_size, padding=convolution.padding, stride=convolution.stride)
    products = weight.flatten(1) @ patches + convolution.bias.detach().double()[:, None]  # [4, outputs, positions]
    found = convolution(images)
    toward = torch.zeros_like(found)  # of the batch's other images nothing is asked, but they are there
    toward[:4].normal_()
    found.backward(toward)
    expected = products.view_as(found[:4])
    expected.backward(toward[:4].double())
    pairs = [(found[:4], expected), (convolution.weight.grad, weight.grad)]
    pairs += [(images.grad[:4], few.grad)] if images.requires_grad else []
    for ours, theirs in pairs:
        assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    convolution.zero_grad()
    images.grad = None


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["float32", "bf16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_every_convolution_is_exact(name: str, precision, layout) -> None:
    """Deterministic, without TF32: what training asks at the paper's batch, and evaluation and FLOPs at theirs.

    Of images, which have one channel, nothing asks for the gradient.
    """
    set_up()
    inputs, outputs, kernel, stride, padding, size = CONVOLUTIONS[name]
    convolution = Convolution(inputs, outputs, kernel, stride, padding).to("cuda", memory_format=layout)
    images = torch.randn(128, inputs, size, size, device="cuda").to(memory_format=layout).requires_grad_(inputs > 1)
    if precision is torch.float32:
        assert_full_float32(convolution, images)
    with torch.autocast("cuda", torch.bfloat16, enabled=precision is torch.bfloat16):
        convolution(images).float().square().sum().backward()
    for gradient in (convolution.weight.grad, *([images.grad] if inputs > 1 else [])):
        assert gradient is not None
        assert gradient.isfinite().all()
    with torch.no_grad():
        for count in (1, 200, 2000) if precision is torch.float32 else ():  # evaluation is float32
            assert convolution(images[:1].expand(count, -1, -1, -1).contiguous(memory_format=layout)).isfinite().all()


@pytest.mark.parametrize("name", [name for name, (inputs, *_) in CONVOLUTIONS.items() if inputs > 1])
def test_tiles_round_once_and_have_the_same_bits_twice(name: str) -> None:
    """Against float64 products of the same numbers; a gradient comes from the first and last images of two blocks."""
    set_up()
    the_unit_or_none()
    inputs, outputs, kernel, stride, padding, size = CONVOLUTIONS[name]
    few = torch.tensor([0, 127, 128, 129], device="cuda")
    x = torch.randn(130, inputs, size, size, device="cuda").bfloat16().to(memory_format=torch.channels_last)
    weight = (torch.randn(outputs, inputs, kernel, kernel, device="cuda") / kernel / 16).bfloat16().float()
    weight, bias = weight.to(memory_format=torch.channels_last), torch.randn(outputs, device="cuda")

    def answers(x: torch.Tensor, toward: torch.Tensor | None = None) -> list[torch.Tensor]:
        given = [t.detach().requires_grad_() for t in (x, weight, bias)]
        y = gpu_tiles.by_gpu_tiles(F.pad(given[0], [padding] * 4), *given[1:], stride)
        return [y, *torch.autograd.grad(y, given, y.detach() if toward is None else toward)]

    toward = torch.zeros_like(answers(x)[0])
    toward[few] = torch.randn_like(toward[few])
    found = answers(x, toward)
    assert all(map(torch.equal, found, answers(x, toward)))
    for ours, beside in zip(answers(x[127:], toward[127:])[:2], found[:2], strict=True):
        assert torch.equal(ours, beside[127:])
    given = [t.detach().double().requires_grad_() for t in (x[few], weight, bias)]
    patches = F.unfold(given[0], kernel, padding=padding, stride=stride)
    exact = (given[1].flatten(1) @ patches + given[2][:, None]).view_as(found[0][few])
    true = [exact, *torch.autograd.grad(exact, given, toward[few].double())]
    for ours, theirs in ((found[0][few], true[0]), (found[1][few], true[1])):
        assert ours.dtype == torch.bfloat16
        assert ((ours.double() - theirs).abs() <= theirs.abs() * 2**-8 + 1e-4 * theirs.abs().max()).all()
    # A tensor core cuts off what no longer fits into a sum, some 2^-25 of it whenever it adds 16 more products: here
    # those of the first, the eighth and the ninth 16 images at each place.
    added = 3 * exact.shape[2] * exact.shape[3]
    for ours, theirs, least in ((found[2], true[2], 6e-8 * added), (found[3], true[3], 0)):
        assert (ours - theirs).norm() <= (1e-6 + least) * theirs.norm()


def the_unit_or_none() -> None:
    if (reason := gpu_tiles.why_not(torch.device("cuda"))) == gpu_tiles.NO_UNIT:
        pytest.skip(f"tiling {reason}")
    assert reason is None


def test_the_transforms_of_convolutions_are_kernels_here() -> None:
    set_up()
    convolution = Convolution(256, 256, 9, 2).to("cuda", memory_format=torch.channels_last)
    images = torch.randn(8, 256, 20, 20, device="cuda", requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it would be said that matrices do in their place
        convolution(images).sum().backward()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("variant", ["capsnet-r3-recon", "cnn", "cnn-pool"])
def test_a_gpu_is_taken_unasked_and_gives_the_same_bits_twice(tiny, variant: str, precision: str) -> None:
    plan = tiny.plan(variant, steps=50)
    plan.write_text(plan.read_text().replace("float32", precision))
    for results in ("first", "second"):
        code, said = tiny.run(results, "train", plan, "--seed", 0)
        assert code == 0, said
    manifest = json.loads((tiny.run_folder("first", variant) / "manifest.json").read_text())
    assert manifest["resolved"]["device"].startswith("cuda")
    assert manifest["machine"]["gpu"]
    assert manifest["resolved"].get("routing") == ("fused" if variant.startswith("capsnet") else None)
    assert bits(tiny.run_folder("first", variant)) == bits(tiny.run_folder("second", variant))


def test_the_peak_memory_of_a_run_is_its_own_and_not_that_of_the_runs_before_it(tiny) -> None:
    assert tiny.run("both", "train", tiny.plan("cnn", steps=50))[0] == 0
    folders = [tiny.run_folder("both", "cnn", seed) for seed in (0, 1)]
    first, second = (json.loads((folder / "manifest.json").read_text())["peak_memory_mb"] for folder in folders)
    assert abs(second - first) < 16  # what a recording leaves behind are two work spaces of 32 MiB


def test_killed_on_a_gpu_and_gone_on_with_ends_in_the_same_bits(tiny) -> None:
    plan = tiny.plan(steps=30)
    assert tiny.run("straight", "train", plan, "--seed", 0)[0] == 0
    assert tiny.signalled("stopped", 17, "SIGKILL", "train", plan, "--seed", 0)[0] == -signal.SIGKILL
    folder = tiny.run_folder("stopped")
    assert tiny.run("stopped", "train", plan, "--seed", 0)[0] == 0
    assert bits(folder) == bits(tiny.run_folder("straight"))


@pytest.mark.parametrize("width", [1 / 32, 1])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize(
    ("name", "fused"),
    [
        *((name, True) for name in ("capsnet-r3-recon", "capsnet-kmeans")),
        *((name, False) for name in ("capsnet-r3-recon", "capsnet-scaled-distance", "cnn", "cnn-pool", "resnet-flops")),
        *((name, False) for name in ("em-matrix", "two-digit-kmeans")),
    ],
)
def test_a_captured_step_ends_in_the_bits_of_the_eager_one(
    name: str, precision: str, width: float, fused: bool
) -> None:
    set_up()
    both = (small_step(name, precision=precision, device="cuda", width=width, fused=fused) for _ in range(2))
    eager, recorded = both
    fast = captured(recorded, 0, fail)
    assert isinstance(fast, CapturedStep)
    go_on(eager, 0, 25)  # over two epochs' ends
    go_on(fast, 0, 25)
    assert small_bits(recorded) == small_bits(eager)


@pytest.mark.parametrize("width", [1 / 4, 1])
def test_a_step_by_tiles_waits_for_nothing_and_captured_ends_in_the_bits_of_the_eager_one(width: float) -> None:
    set_up()
    the_unit_or_none()
    kinds = {"precision": "bf16", "device": "cuda", "width": width, "fused": True, "tiled": True}
    eager, recorded = (small_step("capsnet-r3-recon", **kinds) for _ in range(2))
    fast = captured(recorded, 0, fail)
    assert isinstance(fast, CapturedStep)
    eager(0, 1e-3, 0.0)  # what is set up in a first step may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        go_on(eager, 1, 25)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    go_on(fast, 0, 25)
    assert small_bits(recorded) == small_bits(eager)


@pytest.mark.parametrize(("name", "task"), [(name, task) for name in VARIANTS for task in tasks_of(name)])
def test_every_variant_is_captured_and_no_step_of_it_waits(name: str, task: str) -> None:
    set_up()
    step = small_step(name, task, device="cuda")
    fast = captured(step, 0, fail)
    assert isinstance(fast, CapturedStep)
    step(0, 1e-3)  # what is set up in a first step may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        go_on(step, 1, 25)
        go_on(fast, 1, 25)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_recording_that_broke_off_leaves_dropout_and_all_else_as_it_was() -> None:
    set_up()
    harmed, other = small_step("cnn", device="cuda"), small_step("cnn", device="cuda")
    hook = harmed.model.dense[-1].register_forward_hook(lambda module, given, made: (made.sum().item(), None)[1])  # type: ignore[union-attr,index]
    said: list[str] = []
    assert captured(harmed, 0, said.append) is harmed
    assert len(said) == 1
    assert said[0].startswith("The training step is not captured (")
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    hook.remove()
    go_on(harmed, 0, 5)
    go_on(other, 0, 5)
    assert small_bits(harmed) == small_bits(other)
    assert isinstance(captured(harmed, 5, fail), CapturedStep)


def test_a_step_that_reads_a_number_of_python_s_is_found_out() -> None:
    set_up()
    step = small_step("cnn", device="cuda")
    calls: list[int] = []

    def scaled(module, given, made):
        calls.append(0)
        return made * (1 + len(calls) / 1000)

    step.model.dense[-1].register_forward_hook(scaled)  # type: ignore[union-attr,index]
    said: list[str] = []
    assert captured(step, 0, said.append) is step
    assert "it ended in other bits than the eager step" in said[0]


def test_a_run_says_in_its_manifest_that_it_was_captured_and_has_the_bits_of_one_that_was_not(tiny) -> None:
    plan = tiny.plan("cnn", steps=50)
    found = {}
    for word in ("on", "off"):
        code, said = tiny.run(word, "train", plan, "--seed", 0, CAPSBENCH_CAPTURE=word)
        assert code == 0, said
        folder = tiny.run_folder(word, "cnn")
        found[word] = bits(folder)
        resolved = json.loads((folder / "manifest.json").read_text())["resolved"]
        assert resolved["captured"] is (word == "on")
    assert found["on"] == found["off"]


@pytest.mark.parametrize(
    ("name", "width", "kinds"),
    [
        *((name, width, {}) for name in ("capsnet-r3-recon", "em-matrix", "resnet-flops") for width in (1 / 32, 1)),
        ("capsnet-r3-recon", 1, {"precision": "bf16", "fused": True, "tiled": True}),
    ],
)
def test_captured_seeds_on_streams_of_their_own_end_in_the_bits_of_each_alone(name, width, kinds) -> None:
    set_up()
    if "tiled" in kinds:
        the_unit_or_none()
    alone, at_once = ([small_step(name, device="cuda", width=width, **kinds) for _ in range(4)] for _ in range(2))
    for start, step in enumerate(alone):  # other batches and rates for each
        go_on(step, start, start + 25)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in at_once]
    ways = []
    for step, stream in zip(at_once, streams, strict=True):
        with torch.cuda.stream(stream):
            ways.append(captured(step, 0, fail))
    for number in range(25):
        for start, (way, stream) in enumerate(zip(ways, streams, strict=True)):
            with torch.cuda.stream(stream):
                go_on(way, start + number, start + number + 1)
    torch.cuda.synchronize()
    assert [small_bits(step) for step in at_once] == [small_bits(step) for step in alone]


@pytest.mark.parametrize(
    ("variant", "count"),
    [("capsnet-r3-recon", 2), ("cnn", None)],  # dropout draws random numbers: one after another, and that is said
)
def test_seeds_of_a_cell_train_at_once_to_the_bits_of_each_alone(tiny, variant: str, count: int | None) -> None:
    plan = tiny.plan(variant, steps=60)
    assert tiny.run("alone", "train", plan, CAPSBENCH_SEEDS_AT_ONCE="1")[0] == 0
    code, said = tiny.run("together", "train", plan, CAPSBENCH_SEEDS_AT_ONCE="8")
    assert code == 0, said
    assert ("since its step draws random numbers" in said) is (count is None)
    for seed in (0, 1):
        folder = tiny.run_folder("together", variant, seed)
        assert bits(folder) == bits(tiny.run_folder("alone", variant, seed))
        assert json.loads((folder / "manifest.json").read_text())["resolved"].get("seeds_at_once") == count
