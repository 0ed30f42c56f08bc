"""On a CUDA GPU: taken unasked, the same bits twice for every kind of model, stopped and gone on with."""

from __future__ import annotations

import json
import signal

import pytest

from capsbench.training.checkpoint import read_tensors, tensor_digest

pytestmark = pytest.mark.cuda


def bits(folder) -> str:
    return tensor_digest(read_tensors(folder / "weights.safetensors").tensors)


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


def test_killed_on_a_gpu_and_gone_on_with_ends_in_the_same_bits(tiny) -> None:
    from test_run import wait_for

    plan = tiny.plan(steps=300)
    assert tiny.run("straight", "train", plan, "--seed", 0)[0] == 0
    process = tiny.start("stopped", "train", plan, "--seed", 0, CAPSBENCH_CHECKPOINT_SECONDS="0.05")
    folder = tiny.run_folder("stopped")
    wait_for(folder / "checkpoint" / "previous.safetensors", process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert tiny.run("stopped", "train", plan, "--seed", 0)[0] == 0
    assert bits(folder) == bits(tiny.run_folder("straight"))
