"""Fair baselines: what was CapsNet's alone, given to the CNN; a modern CNN at CapsNet's parameters and at its FLOPs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from capsbench.data.batch import Batch
from capsbench.models import build_model, count_parameters
from capsbench.models.layout import channels_last
from capsbench.training.checkpoint import Checkpoint, read_tensors, restore, training_tensors, write_tensors
from capsbench.training.losses import margin_loss, multi_hot, reconstruction_loss
from capsbench.training.step import Step

NARROW = {"channels": [4, 4, 4], "decoder": [8, 16]}
IMAGES = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([[1], [2], [3], [4]])
BATCH = Batch(IMAGES, LABELS, IMAGES)


def narrow(variant: str, **values: object) -> nn.Module:
    torch.manual_seed(0)
    return build_model({"base": variant, **NARROW, **values})


def test_the_cnn_s_decoder_is_capsnet_s() -> None:
    with torch.device("meta"):
        cnn, capsnet = build_model("cnn-recon"), build_model("capsnet-r3-recon")
    ours, theirs = ({n: p.shape for n, p in m.decoder.named_parameters()} for m in (cnn, capsnet))
    assert ours == theirs
    assert cnn.decoder.mask == capsnet.decoder.mask == "class"


def test_the_cnn_s_squared_error_reaches_its_convolutions_and_leaves_its_classifier_alone() -> None:
    model = narrow("cnn-recon")
    output = model(IMAGES)
    assert output.poses.shape == (4, 10, 16)
    reconstruction_loss(model.reconstruct(output.poses, LABELS[:, 0]), IMAGES[:, 0]).sum().backward()
    assert all(layer.weight.grad.any() for layer in model.convolutions)
    assert model.classes.weight.grad is None
    chosen = model.vectors.weight.grad.view(10, 16, -1).flatten(1).any(1)  # only the vectors of the drawn classes
    assert chosen.nonzero().flatten().tolist() == [1, 2, 3, 4]


def test_the_classifier_is_the_same_with_and_without_a_decoder() -> None:
    plain = build_model({"base": "cnn", "channels": NARROW["channels"]}).eval()
    drawing = narrow("cnn-recon").eval()
    drawing.load_state_dict(plain.state_dict(), strict=False)
    assert torch.equal(plain(IMAGES).scores, drawing(IMAGES).scores)
    assert plain(IMAGES).poses is None
    with pytest.raises(TypeError, match="no decoder"):
        plain.reconstruct(torch.zeros(1, 10, 16), torch.tensor([1]))


def test_dropout_is_before_the_classes_and_not_before_what_the_decoder_reads() -> None:
    model = narrow("cnn-recon", dropout=0.5).train()
    first, second = model(IMAGES), model(IMAGES)
    assert not torch.equal(first.scores, second.scores)
    assert torch.equal(first.poses, second.poses)


def test_one_step_trains_the_cnn_with_capsnet_s_loss() -> None:
    model = narrow("cnn-recon-margin", dropout=0.0)
    total, classification, drawing = Step(model, model.spec, None, 0, "float32", 1e-3).losses(BATCH)
    output = model(IMAGES)
    assert ((output.scores > 0) & (output.scores < 1)).all()
    torch.testing.assert_close(output.scores, model.classes(model.features(IMAGES)).sigmoid())
    margin = margin_loss(output.scores, multi_hot(LABELS)).mean()
    squares = reconstruction_loss(model.reconstruct(output.poses, LABELS[:, 0]), IMAGES[:, 0]).mean()
    torch.testing.assert_close(classification, margin)
    torch.testing.assert_close(drawing, squares)
    torch.testing.assert_close(total, margin + 0.0005 * squares)


def test_a_shared_w_without_routing_and_with_class_agnostic_reconstruction() -> None:
    model = build_model("capsnet-shared-uniform-agnostic", 40)
    assert model.digit_caps.weight.shape == (32, 10, 8, 16)
    assert model.decoder.layers[0].in_features == 16
    with torch.no_grad():
        couplings = model(torch.rand(1, 1, 40, 40)).couplings
    torch.testing.assert_close(couplings, torch.full_like(couplings, 0.1))


def flops(model: nn.Module) -> int:
    """Of one image forward: matrix products and convolutions, two for each multiplication."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(1, 1, 28, 28))
    return counter.get_total_flops()


def test_the_residual_networks_have_capsnet_s_parameters_and_flops() -> None:
    capsnet = build_model("capsnet-r3-recon")
    parameters, cost = count_parameters(capsnet), flops(capsnet)
    assert parameters == 8_215_568
    assert abs(count_parameters(build_model("resnet-parameters")) / parameters - 1) < 0.01
    assert abs(flops(build_model("resnet-flops")) / cost - 1) < 0.05


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_running_means_are_stored_restored_and_not_counted(tmp_path, precision: str) -> None:
    def fresh() -> Step:
        torch.manual_seed(0)
        model = channels_last(build_model({"base": "resnet-flops", "channels": [4, 8], "blocks": 1}))
        return Step(model, model.spec, type("Stream", (), {"batch": lambda _, step: BATCH})(), 0, precision, 1e-3)

    straight, stopped = fresh(), fresh()
    for number in range(3):
        straight(number, 1e-3)
        stopped(number, 1e-3)
    write_tensors(
        tmp_path / "c.safetensors", training_tensors(stopped.model, stopped.optimiser, stopped.sums), {"step": 3}
    )
    again = fresh()
    stored = read_tensors(tmp_path / "c.safetensors")
    assert {k for k in stored.tensors if "running_mean" in k} == {
        f"model.{name}" for name, _ in again.model.named_buffers() if "running_mean" in name
    }
    restore(Checkpoint(stored.tensors, stored.meta), again.model, again.optimiser, again.sums)
    for number in range(3, 6):
        straight(number, 1e-3)
        again(number, 1e-3)
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name
    buffers = sum(buffer.numel() for buffer in again.model.buffers())
    total = sum(value.numel() for value in again.model.state_dict().values())
    assert buffers > 0
    assert count_parameters(again.model) == total - buffers


def test_evaluation_reads_running_means_and_changes_none() -> None:
    model = build_model({"base": "resnet-flops", "channels": [4, 8], "blocks": 1}).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    together = model(IMAGES).scores
    alone = torch.cat([model(image[None]).scores for image in IMAGES])
    torch.testing.assert_close(together, alone)  # an image's answer does not depend on its neighbours
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_residual_block_of_few_channels_writes_where_it_may_on_a_cpu_with_avx2_alone() -> None:
    """oneDNN's strided 1x1 convolution of fewer than eight channels does not (its issue 6035)."""
    code = (
        "import torch\n"
        "torch.set_num_threads(1)\n"  # two wait for each other forever once the heap is broken
        "from capsbench.models.resnet import Block\n"
        "block = Block(3, 7, 2).to(memory_format=torch.channels_last)\n"
        "for _ in range(40):\n"
        "    x = torch.randn(32, 3, 28, 28).to(memory_format=torch.channels_last)\n"
        "    block(x).sum().backward()\n"
        "    kept = [torch.zeros(7 * size + 1) for size in range(60)]\n"
    )
    checks = {"ONEDNN_MAX_CPU_ISA": "AVX2", "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    # glibc looks after its heap with this; elsewhere the process has to end well by itself
    preload = {"LD_PRELOAD": "libc_malloc_debug.so.0"} if platform.libc_ver()[0] == "glibc" else {}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | checks | preload, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
