"""Runs as processes: the same bits twice, stopped anywhere and gone on with, failed runs as results."""

from __future__ import annotations

import json
import signal

import pytest
import torch
from places import PATIENCE, wait_for

from capsbench.training.checkpoint import read_tensors, tensor_digest
from capsbench.training.precisions import precisions


def bits(folder) -> str:
    return tensor_digest(read_tensors(folder / "weights.safetensors").tensors)


# cnn: dropout draws random numbers in every step; resnet: batch normalisation's running means
@pytest.mark.slow
@pytest.mark.parametrize("variant", ["capsnet-r3-recon", "cnn", "resnet-flops"])
def test_killed_twice_and_gone_on_with_ends_in_the_same_bits(tiny, variant: str) -> None:
    plan = tiny.plan(variant, steps=30)
    code, said = tiny.run("straight", "train", plan, "--seed", 0)
    assert code == 0, said
    folder = tiny.run_folder("stopped", variant)
    for at in (17, 24):  # each time the step just made is lost
        code, said = tiny.signalled("stopped", at, "SIGKILL", "train", plan, "--seed", 0)
        assert code == -signal.SIGKILL, said
        assert not (folder / "manifest.json").exists()
    code, said = tiny.run("stopped", "train", plan, "--seed", 0)
    assert code == 0
    assert "going on after step 23 of 30" in said
    assert bits(folder) == bits(tiny.run_folder("straight", variant))
    assert json.loads((folder / "manifest.json").read_text())["resumed"] == 2
    rows = [line.rsplit(",", 1)[0] for line in (folder / "history.csv").read_text().splitlines()]  # but images a second
    assert rows == [
        line.rsplit(",", 1)[0]
        for line in (tiny.run_folder("straight", variant) / "history.csv").read_text().splitlines()
    ]


def test_sigterm_saves_and_says_so(tiny) -> None:
    plan = tiny.plan(steps=100_000)
    process = tiny.start("stopped", "train", plan, "--seed", 0, CAPSBENCH_CHECKPOINT_SECONDS="0.2")
    folder = tiny.run_folder("stopped")
    wait_for(folder / "checkpoint" / "last.safetensors", process)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 4
    assert "stopped by SIGTERM, saved after step" in said
    assert "Traceback" not in said
    saved = read_tensors(folder / "checkpoint" / "last.safetensors").meta["step"]
    assert f"saved after step {saved} of" in said


def test_seeds_differ_and_runs_repeat(tiny) -> None:
    plan = tiny.plan(steps=10)
    assert tiny.run("first", "train", plan)[0] == 0
    assert tiny.run("second", "train", plan, "--seed", 1)[0] == 0
    assert bits(tiny.run_folder("first", seed=1)) == bits(tiny.run_folder("second", seed=1))
    assert bits(tiny.run_folder("first", seed=0)) != bits(tiny.run_folder("first", seed=1))


@pytest.mark.slow
def test_two_threads_repeat_and_a_stopped_run_keeps_to_its_own_two(tiny) -> None:
    """As most published runs were trained. Bits differ with the number of threads, so the checkpoint's decides."""
    plan = tiny.plan(steps=30)
    for results in ("first", "second"):
        assert tiny.run(results, "train", plan, "--seed", 0, "--threads", 2)[0] == 0
    assert bits(tiny.run_folder("first")) == bits(tiny.run_folder("second"))
    code, said = tiny.signalled("stopped", 17, "SIGKILL", "train", plan, "--seed", 0, "--threads", 2)
    assert code == -signal.SIGKILL, said
    code, said = tiny.run("stopped", "train", plan, "--seed", 0, "--threads", 1)
    assert code == 0, said
    assert "going on after step 16 of 30" in said
    assert bits(tiny.run_folder("stopped")) == bits(tiny.run_folder("first"))
    manifest = json.loads((tiny.run_folder("stopped") / "manifest.json").read_text())
    assert manifest["resolved"]["threads"] == 2


@pytest.mark.slow
def test_an_altered_checkpoint_is_passed_over_aloud(tiny) -> None:
    plan = tiny.plan(steps=30)
    tiny.run("straight", "train", plan, "--seed", 0)
    assert tiny.signalled("stopped", 17, "SIGKILL", "train", plan, "--seed", 0)[0] == -signal.SIGKILL
    folder = tiny.run_folder("stopped")
    last = folder / "checkpoint" / "last.safetensors"
    content = bytearray(last.read_bytes())
    content[-100] ^= 1
    last.write_bytes(content)
    code, said = tiny.run("stopped", "train", plan, "--seed", 0)
    assert code == 0
    assert "has been altered" in said
    assert "going on after step 15 of 30" in said  # from the checkpoint before it
    assert bits(folder) == bits(tiny.run_folder("straight"))


def test_a_loss_that_is_not_finite_is_a_result(tiny) -> None:
    plan = tiny.plan("cnn", steps=40, rate=1e30)
    code, said = tiny.run("results", "train", plan, "--seed", 0)
    assert code == 3
    manifest = json.loads((tiny.run_folder("results", "cnn") / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "not finite between steps" in manifest["reason"]
    assert manifest["reason"] in said
    assert tiny.run("results", "train", plan, "--seed", 0, "--done", tiny.folder / "trained.json")[0] == 0  # a job
    code, said = tiny.run("results", "evaluate", plan, "--seed", 0)
    assert code == 0
    assert not (tiny.run_folder("results", "cnn") / "test").exists()


def test_a_done_run_is_left_alone_and_an_edited_plan_trains_again(tiny) -> None:
    plan = tiny.plan(steps=5)
    tiny.run("results", "train", plan, "--seed", 0)
    manifest = tiny.run_folder("results") / "manifest.json"
    before = manifest.read_bytes()
    code, said = tiny.run("results", "train", plan, "--seed", 0)
    assert (code, manifest.read_bytes()) == (0, before)
    assert "done already" in said
    tiny.run("results", "train", tiny.plan(steps=6), "--seed", 0)
    assert json.loads(manifest.read_text())["steps"] == 6


def test_a_stand_in_trains_for_as_many_steps_as_the_plan_counts(tiny) -> None:
    plan = tiny.plan()
    words = plan.read_text().replace("steps: 30, batch: 16", "epochs: 1, batch: 32")
    plan.write_text(words.replace("    variants", "    train_per_class: 10\n    variants"))
    assert tiny.run("results", "train", plan, "--seed", 0)[0] == 0
    manifest = json.loads((tiny.run_folder("results") / "manifest.json").read_text())
    assert manifest["steps"] == 4  # ceil(100 / 32): not those of 60,000 digits


def test_the_manifest_says_where_a_number_comes_from(tiny) -> None:
    tiny.run("results", "train", tiny.plan(steps=5), "--seed", 0, "--threads", "2")
    manifest = json.loads((tiny.run_folder("results") / "manifest.json").read_text())
    assert manifest["resolved"] == {
        "precision": "float32",
        "precision_timings": None,
        "threads": 2,
        "device": "cpu",
    }
    assert manifest["dataset"] == {"name": "uci-digits", "badge": "UCI digits, not MNIST"}
    assert "UCI digits, not MNIST" in manifest["reductions"]
    assert manifest["config"]["variant"]["iterations"] == 3
    assert set(manifest["digests"]) == {"config", "training_source", "data", "plan", "claims"}
    assert manifest["versions"]["torch"]
    assert manifest["machine"]["gpu"] is None or isinstance(manifest["machine"]["gpu"], str)
    assert manifest["peak_memory_mb"] > 50
    assert manifest["seconds"] > 0


@pytest.mark.slow
def test_precision_auto_is_timed_recorded_and_shared_by_a_cell(tiny) -> None:
    plan = tiny.plan(steps=4)
    plan.write_text(plan.read_text().replace(", precision: float32", ""))
    assert tiny.run("results", "train", plan)[0] == 0
    resolved = [
        json.loads((tiny.run_folder("results", seed=s) / "manifest.json").read_text())["resolved"] for s in (0, 1)
    ]
    assert resolved[0] == resolved[1]
    timings = resolved[0]["precision_timings"]
    if precisions(torch.device("cpu")) == ("float32",):
        assert (resolved[0]["precision"], timings) == ("float32", None)
        return
    assert set(timings) == {"float32", "bf16"}
    assert resolved[0]["precision"] in timings
    plan.write_text(plan.read_text().replace("batch: 16", "batch: 32"))
    assert tiny.run("results", "train", plan, "--seed", 0)[0] == 0
    again = json.loads((tiny.run_folder("results") / "manifest.json").read_text())["resolved"]
    assert again["precision_timings"] != timings  # of another training: measured anew


def test_bf16_trains_by_name(tiny) -> None:
    plan = tiny.plan(steps=4)
    plan.write_text(plan.read_text().replace("float32", "bf16"))
    code, said = tiny.run("results", "train", plan, "--seed", 0)
    assert code == 0, said
    assert "(bf16, cpu)" in said


@pytest.mark.slow
def test_bf16_routes_without_votes_where_a_compiler_is_and_says_where_not(tiny) -> None:
    plan = tiny.plan(steps=12)
    plan.write_text(plan.read_text().replace("float32", "bf16"))
    for place, killed in (("straight", False), ("stopped", True)):
        if killed:
            tiny.signalled(place, 9, "SIGKILL", "train", plan, "--seed", 0)
        code, said = tiny.run(place, "train", plan, "--seed", 0)
        assert code == 0, said
        resolved = json.loads((tiny.run_folder(place) / "manifest.json").read_text())["resolved"]
        assert resolved["routing"] == "fused"
    assert "going on after step" in said
    assert bits(tiny.run_folder("stopped")) == bits(tiny.run_folder("straight"))
    code, said = tiny.run("plain", "train", plan, "--seed", 0, CC="/bin/false")
    assert code == 0, said
    assert "Routing keeps its votes in memory, since fused routing does not compile here (/bin/false: )." in said
    manifest = json.loads((tiny.run_folder("plain") / "manifest.json").read_text())
    assert manifest["resolved"]["routing"] == "plain"


def test_tensorboard_on_request(tiny) -> None:
    tiny.run("results", "train", tiny.plan(steps=4), "--seed", 0, "--tensorboard")
    assert list((tiny.run_folder("results") / "tensorboard").glob("events.*"))


def test_a_device_that_is_not_there_is_a_sentence(tiny) -> None:
    code, said = tiny.run("results", "train", tiny.plan(), "--device", "cuda:99")
    assert code == 2
    assert "There is no device 'cuda:99' here" in said
    assert "Traceback" not in said
