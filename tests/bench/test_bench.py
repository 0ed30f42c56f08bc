"""The plain reference computes what our CapsNet computes; the figures add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from capsbench.bench import grow, measure
from capsbench.bench.count import moved_bytes
from capsbench.bench.measure import Contender, race, row
from capsbench.bench.plain import PlainCapsNet
from capsbench.bench.run import PLAIN, bench
from capsbench.cli.app import app
from capsbench.cli.bench import bench_table
from capsbench.data.batch import Batch
from capsbench.errors import CapsbenchError, ResourceError
from capsbench.evaluation.memory import peak_bytes
from capsbench.models import build_model, count_parameters, tiles
from capsbench.models.flops import flops
from capsbench.plan import House, load_variants
from capsbench.report.speed import draw_speed
from capsbench.routing import cpu_fused
from capsbench.training.capture import CapturedStep, proven
from capsbench.training.precisions import precisions
from capsbench.training.step import Step

CPU = torch.device("cpu")


def test_plain_and_ours_have_the_same_loss_and_gradients() -> None:
    spec = load_variants()["capsnet-r3-recon"]
    torch.manual_seed(3)
    ours = build_model(spec, 28)
    plain = PlainCapsNet(28)
    plain.load_state_dict(ours.state_dict())
    assert count_parameters(plain) == 8_215_568
    images = torch.rand(3, 1, 28, 28)
    batch = Batch(images, torch.tensor([[1], [7], [0]]), images)
    expected = Step(ours, spec, None, 0, "float32", 1e-3).losses(batch)[0]  # type: ignore[arg-type]
    loss = plain.loss(batch)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    loss.backward()
    expected.backward()
    for (name, a), b in zip(plain.named_parameters(), ours.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert (a.grad - b.grad).norm() <= 1e-4 * b.grad.norm(), name


def test_plain_at_40_pixels_has_the_papers_parameters() -> None:
    assert count_parameters(PlainCapsNet(40)) == 13_475_648


def test_race_goes_round_and_does_not_count_the_warm_up() -> None:
    order: list[str] = []
    contenders = [Contender(name, "training", "float32", 4, lambda name=name: order.append(name)) for name in "ab"]  # type: ignore[misc]
    race(contenders, 3, torch.device("cpu"), lambda _: None)
    assert order == list("abababab")
    assert [len(c.seconds) for c in contenders] == [3, 3]


def test_on_a_gpu_so_many_calls_follow_each_other_that_waiting_for_them_counts_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device of which a call takes 1 ms, or 60, and a wait for it 10 ms more."""
    now, order = [0.0], []

    def takes(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            now[0] += seconds

        return call

    monkeypatch.setattr(measure, "LEAST", {"cpu": 0.05})
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    answers = takes("wait", 0.01)
    monkeypatch.setattr(measure, "wait", lambda _: answers())
    short = Contender("short", "training", "float32", 4, takes("short", 0.001))
    long = Contender("long", "training", "float32", 4, takes("long", 0.06))
    race([short, long], 20, torch.device("cpu"), lambda _: None)
    assert (short.calls, long.calls) == (64, 1)  # 32 take 42 ms
    assert short.seconds == pytest.approx([0.001 + 0.01 / 64] * 20)
    assert long.seconds == pytest.approx([0.07] * 20)
    assert order[-69:] == ["wait", *["short"] * 64, "wait", "wait", "long", "wait"]
    assert row(short, {}, {"float32": 1.0}, 60_000)["calls"] == 64


def test_a_row_is_medians_against_plain_and_product() -> None:
    contender = Contender("x", "training", "bf16", 10, lambda: None, flops=100, seconds=[2.0, 1.0, 5.0])
    said = row(contender, {"training": 0.8}, {"bf16": 200.0}, 60_000)
    assert said["images_per_second"] == 5
    assert said["seconds_per_epoch"] == 12_000
    assert said["times_plain"] == pytest.approx(4)
    assert said["fraction_of_product"] == 0.25
    inference = row(Contender("x", "inference", "bf16", 10, lambda: None, seconds=[1.0]), {}, {}, 60_000)
    assert inference["seconds_per_epoch"] is None  # an epoch is of training
    two = row(Contender("x", "training", "bf16", 10, lambda: None, seconds=[1.0, 10.0]), {}, {}, 60_000)["seconds"]
    assert 1.0 <= two["q1"] < two["q3"] <= 10.0  # no rate outside what was measured, nor a negative one


def test_bf16_is_timed_where_a_cpu_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for computes, timed in ((True, ("float32", "bf16")), (False, ("float32",))):
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda computes=computes: computes)
        assert precisions(CPU) == timed
        assert [contender.precision for contender in measure.products(CPU)] == list(timed)
        assert precisions(torch.device("cuda")) == ("float32", "bf16")


def as_runs_on_a_cpu_are_named() -> str:
    """What a name in bf16 goes on with, by what this machine can do."""
    ways = {"fused": cpu_fused.why_not(), "tiles": tiles.why_not()}
    return "".join(f", {way}" for way, reason in ways.items() if reason is None)


def test_the_command_writes_every_figure(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "budget: reduced\nseeds: [0]\nwidth: 0.125\ntraining: {steps: 1, batch: 4}\n"
        "tasks:\n  mnist: {variants: [capsnet-r1]}\n  multimnist: {variants: [multimnist-cnn]}\n"
    )
    file = tmp_path / "bench.json"
    words = ["bench", str(path), "--variant", "capsnet-r1", "--rounds", "2", "--device", "cpu", "--threads", "1"]
    answer = CliRunner().invoke(app, [*words, "--json", str(file)])
    assert answer.exit_code == 0, answer.output
    result = json.loads(file.read_text())
    assert result["deterministic"] is True
    assert result["others"] >= 0
    names = {(r["name"], r["phase"], r["precision"]) for r in result["rows"]}
    as_it_trains = f"capsnet-r1{as_runs_on_a_cpu_are_named()}"
    ways = [("capsnet-r1", "float32"), ("capsnet-r1", "bf16"), (as_it_trains, "bf16")]
    if "bf16" not in precisions(CPU):
        assert "bf16 is left out" in answer.output
        ways = ways[:1]
    ours = {(name, phase, kind) for phase in ("training", "inference") for name, kind in ways}
    assert names == ours | {(PLAIN, phase, "float32") for phase in ("training", "inference")}
    counted = {(r["name"], r["phase"]): r["flops"] for r in result["rows"] if r["precision"] == "bf16"}
    for _, phase in counted:  # torch sees none of those in our kernels
        assert counted[as_it_trains, phase] == counted["capsnet-r1", phase] > 0
    assert {r["batch"] for r in result["rows"]} == {4}
    assert all(r["times_plain"] > 0 for r in result["rows"])
    other = "--task multimnist --variant multimnist-cnn --rounds 2 --device cpu --threads 1"
    again = CliRunner().invoke(app, ["bench", str(path), *other.split()])
    assert again.exit_code == 0, again.output
    wrong = CliRunner().invoke(app, ["bench", str(path), "--variant", "capsnet-r9"])
    assert wrong.exit_code != 0


def test_a_captured_step_is_a_contender_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class AtOnce:
        """Records nothing: it does the work each time."""

        def record(self, work: Callable[[], None]) -> None:
            self.replay = work

    path = tmp_path / "plan.yaml"
    path.write_text(
        "budget: reduced\nseeds: [0]\nwidth: 0.125\ntraining: {steps: 1, batch: 4}\n"
        "tasks:\n  mnist: {variants: [capsnet-r1]}\n"
    )

    def recorded(step: Step, *given: Any) -> CapturedStep | Step:
        return proven(step, *given, AtOnce)

    monkeypatch.setattr("capsbench.bench.run.captured", recorded)
    house = House.load(path)
    result = bench(house, house.cells, 4, 2, torch.device("cpu"), 1, lambda _: None)
    rows = {(row["name"], row["precision"]): row for row in result["rows"] if row["phase"] == "training"}
    for precision in precisions(CPU):
        eager, fast = rows["capsnet-r1", precision], rows["capsnet-r1, captured", precision]
        assert fast["flops"] == eager["flops"]
        assert fast["moved_bytes"] is fast["peak_bytes"] is None
        assert len(fast["seconds"]["all"]) == 2
    assert bench_table(result).row_count == len(result["rows"])
    draw_speed(result, tmp_path / "figures")


def test_figures_are_kept_after_each_round_and_a_way_that_fails_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "budget: reduced\nseeds: [0]\nwidth: 0.125\ntraining: {steps: 1, batch: 4}\n"
        "tasks:\n  mnist: {variants: [capsnet-r1]}\n"
    )

    missing = ["bf16"]

    def no_engine(step: Step, *_: Any) -> Step:
        if step.precision in missing:
            raise RuntimeError("unable to find an engine\nand more")
        return step

    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("capsbench.bench.run.captured", no_engine)
    monkeypatch.setattr("capsbench.bench.run.precisions", lambda device: ("float32", "bf16"))
    kept, said = [], []
    house = House.load(path)
    bench(house, house.cells, 4, 2, torch.device("cpu"), 1, said.append, lambda so_far: kept.append(json.dumps(so_far)))
    assert [json.loads(text)["rounds"] for text in kept] == [1, 2]
    rows = json.loads(kept[0])["rows"]
    assert {row["precision"] for row in rows if row["name"] == "capsnet-r1"} == {"float32"}
    assert "capsnet-r1, bf16: not timed, since torch says unable to find an engine" in said
    with monkeypatch.context() as mock:  # of CUDA after an illegal access: every call fails
        mock.setattr(torch.cuda, "is_initialized", lambda: True)
        mock.setattr(torch.cuda, "synchronize", lost)
        with pytest.raises(ResourceError, match="The GPU is lost to this process"):
            bench(house, house.cells, 4, 2, torch.device("cpu"), 1, said.append)
    with monkeypatch.context() as mock:  # the reference's own convolutions
        mock.setattr("capsbench.bench.run.PlainStep.__call__", lambda *_: no_engine(SimpleNamespace(precision="bf16")))
        rows = bench(house, house.cells, 4, 2, torch.device("cpu"), 1, said.append)["rows"]
    assert "plain PyTorch CapsNet, training, float32: not timed, since torch says unable to find an engine" in said
    assert {(row["phase"], row["times_plain"] is None) for row in rows if row["name"] == "capsnet-r1"} == {
        ("training", True),
        ("inference", False),
    }
    missing.append("float32")
    with pytest.raises(CapsbenchError, match="No way of training mnist/capsnet-r1 could be timed"):
        bench(house, house.cells, 4, 2, torch.device("cpu"), 1, said.append)


def test_what_moves_and_what_is_held_is_counted() -> None:
    a, b = torch.ones(100, 100), torch.empty(100, 100)
    assert moved_bytes(lambda: a @ a) == 3 * 40_000
    assert moved_bytes(lambda: a.t()) == 0  # a view
    assert moved_bytes(lambda: torch.mm(a, a, out=b)) == 3 * 40_000  # what it writes to is counted once
    assert moved_bytes(lambda: b.copy_(a)) == 2 * 40_000  # and what it only writes is not read
    assert moved_bytes(lambda: b.zero_()) == moved_bytes(lambda: b.fill_(2.0)) == 40_000
    assert moved_bytes(lambda: b.add_(a)) == 3 * 40_000
    assert flops(lambda: a @ a) == 2 * 100**3
    assert 80_000 <= peak_bytes(lambda: (a + 1) * 2, torch.device("cpu")) < 160_000


@pytest.mark.slow
def test_growth_has_every_size_and_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow, "BATCHES", (2, 4, 8))
    monkeypatch.setattr(grow, "PIXELS", (22, 28))
    monkeypatch.setattr(grow, "SEEDS", (1, 3))
    path = tmp_path / "plan.yaml"
    path.write_text(
        "budget: reduced\nseeds: [0]\nwidth: 0.125\ntraining: {steps: 1, batch: 4}\n"
        "tasks:\n  mnist: {variants: [capsnet-r3-recon]}\n"
    )
    file, drawn = tmp_path / "bench.json", tmp_path / "figures"
    words = f"bench {path} --batch 2 --rounds 2 --device cpu --threads 1 --grow 32 --json {file} --figures {drawn}"
    answer = CliRunner().invoke(app, words.split())
    assert answer.exit_code == 0, answer.output
    result = json.loads(file.read_text())
    sizes = {what: sorted({row["size"] for row in rows}) for what, rows in result["growth"].items()}
    assert sizes == {"batch": [2, 4, 8], "inputs": [4 * 9, 4 * 36], "seeds": [1, 3]}
    images = [round(row["images_per_second"] * row["seconds"]) for row in result["growth"]["seeds"]]
    assert images == [size for size in (2, 6) for _ in precisions(CPU)]  # a step is one of each seed
    grown = {(row["name"], row["precision"]) for rows in result["growth"].values() for row in rows}
    as_it_trains = f"capsnet-r3-recon{as_runs_on_a_cpu_are_named()}"
    assert ("capsnet-r3-recon", "float32") in grown
    assert ((as_it_trains, "bf16") in grown) is ("bf16" in precisions(CPU))
    if as_it_trains != "capsnet-r3-recon":  # this machine has kernels of ours, for bf16
        assert (as_it_trains, "float32") not in grown
    assert all(row["seconds"] > 0 and row["peak_bytes"] > 0 for rows in result["growth"].values() for row in rows)
    assert answer.output.count("seeds at once: 3") == len(precisions(CPU))
    figures = [drawn / name for name in ("roofline.png", "growth.png")]
    assert all(figure.stat().st_size > 10_000 for figure in figures)
    assert [line for line in answer.output.splitlines() if "drawn" in line] == [f"drawn: {path}" for path in figures]
    assert all(row["peak_bytes"] > 4 * result["parameters"][row["name"]] for row in result["rows"])


@pytest.mark.parametrize("asked", [["--grow", "32"], ["--routing"]], ids=" ".join)
def test_what_counts_capsules_is_refused_of_a_cnn_before_anything_is_timed(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("budget: reduced\nseeds: [0]\ntraining: {steps: 1, batch: 4}\ntasks:\n  mnist: {variants: [cnn]}\n")
    answer = CliRunner().invoke(app, ["bench", str(path), "--variant", "cnn", *asked])
    assert isinstance(answer.exception, CapsbenchError)
    assert "which cnn does not have" in str(answer.exception)
    assert answer.output == ""
