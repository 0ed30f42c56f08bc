"""Recorded steps on a CPU: a tape stands in for the CUDA graph, and all but the graph itself is the code that runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_steps import BATCH, COUNT, VARIANTS, bits, go_on, small_step, stream_of, tasks_of, with_its_rate_in_a_tensor
from tape import Tape
from torch import Tensor, nn

from capsbench.data.batch import Batch
from capsbench.errors import CapsbenchError
from capsbench.plan.schema import Training
from capsbench.training import capture
from capsbench.training.capture import CapturedStep, captured, proven
from capsbench.training.checkpoint import Checkpoint, restore, training_tensors
from capsbench.training.loop import Loop
from capsbench.training.step import Step

KINDS = ["capsnet-r3-recon", "cnn", "cnn-pool", "resnet-flops", "em-matrix", "two-digit-kmeans", "two-digit-control"]


def silent(said: str) -> None:
    raise AssertionError(said)


def on_gpu(name: str, precision: str = "float32") -> Step:
    return with_its_rate_in_a_tensor(small_step(name, precision=precision))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_recorded_ends_in_the_bits_of_the_eager_step(name: str, precision: str) -> None:
    eager, recorded = on_gpu(name, precision), on_gpu(name, precision)
    fast = proven(recorded, 7, silent, Tape)
    assert isinstance(fast, CapturedStep)
    untouched = on_gpu(name, precision)
    assert all(
        torch.equal(a, b) for a, b in zip(recorded.model.parameters(), untouched.model.parameters(), strict=True)
    )
    go_on(eager, 7, 12)  # over an epoch's end
    go_on(fast, 7, 12)
    assert bits(recorded) == bits(eager)


@pytest.mark.parametrize("name", KINDS)
def test_recorded_and_eager_steps_may_take_turns(name: str) -> None:
    eager, recorded = on_gpu(name), on_gpu(name)
    fast = proven(recorded, 0, silent, Tape)
    go_on(eager, 0, 9)
    go_on(fast, 0, 3)
    recorded.model.eval()  # a probe, between two steps
    recorded.model(torch.rand(50, 1, *recorded.stream.batch(0).images.shape[2:]))
    recorded.model.train()
    go_on(recorded, 3, 6)
    go_on(fast, 6, 9)
    assert bits(recorded) == bits(eager)


@pytest.mark.parametrize("name", KINDS)
def test_recorded_after_a_checkpoint_ends_in_the_same_bits(name: str) -> None:
    straight, stopped, resumed = on_gpu(name), on_gpu(name), on_gpu(name)
    go_on(straight, 0, 8)
    go_on(proven(stopped, 0, silent, Tape), 0, 4)
    saved = training_tensors(stopped.model, stopped.optimiser, stopped.sums)
    saved = {key: value.detach().clone() for key, value in saved.items()}
    restore(Checkpoint(saved, {}), resumed.model, resumed.optimiser, resumed.sums)
    go_on(proven(resumed, 4, silent, Tape), 4, 8)
    assert bits(resumed) == bits(straight)


class Counting(nn.Module):
    """A model that Python changes from call to call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.calls = model, 0

    def forward(self, images: Tensor) -> object:
        self.calls += 1
        return self.model(images * (1 + self.calls / 1000))


def a_number_as_rate(step: Step) -> None:
    for group in step.optimiser.param_groups:
        group["lr"] = 1e-3


def a_number_as_progress(step: Step) -> None:
    given = step.train

    def train(batch: Batch) -> None:
        filled = step.progress
        step.progress = torch.tensor(float(filled), dtype=torch.float64)
        given(batch)
        step.progress = filled

    step.train = train  # type: ignore[method-assign]


def a_count_in_the_model(step: Step) -> None:
    step.model = Counting(step.model)


@pytest.mark.parametrize(
    ("name", "harm"),
    [("capsnet-r3-recon", a_number_as_rate), ("em-matrix", a_number_as_progress), ("cnn", a_count_in_the_model)],
)
def test_what_a_recording_freezes_is_noticed_and_the_run_is_eager(name: str, harm: Callable[[Step], None]) -> None:
    said: list[str] = []
    step = on_gpu(name)
    harm(step)
    before = {key: value.clone() for key, value in step.model.state_dict().items()}
    assert proven(step, 0, said.append, Tape) is step
    assert said == [
        "The training step is not captured (it ended in other bits than the eager step): slower, the same result."
    ]
    assert all(torch.equal(value, before[key]) for key, value in step.model.state_dict().items())


class Broken(Tape):
    def record(self, work: Callable[[], None]) -> None:
        work()
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the documentation")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")


def test_a_recording_that_fails_is_one_sentence_and_the_run_goes_on_eagerly() -> None:
    said: list[str] = []
    step, other = on_gpu("cnn"), on_gpu("cnn")
    way = proven(step, 0, said.append, Broken)
    assert way is step
    (sentence,) = said
    assert "(OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB): slower, the same result." in sentence
    assert "\n" not in sentence
    go_on(way, 0, 4)
    go_on(other, 0, 4)
    assert bits(step) == bits(other)


@pytest.mark.parametrize("breaks", [False, True])
def test_the_graph_is_warmed_up_aside_and_a_recording_that_breaks_off_leaves_things_as_they_were(
    monkeypatch, breaks: bool
) -> None:
    """The order of calls alone: torch.cuda's parts are stand-ins."""
    calls: list[str] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Stream) -> None:
            calls.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def on(stream: Stream) -> Iterator[None]:
        calls.append(f"on {stream.name}")
        yield
        calls.append("back")

    @contextlib.contextmanager
    def recording(graph: object, stream: Stream) -> Iterator[None]:
        calls.append(f"record on {stream.name}")
        yield
        calls.append("recorded")

    generator = SimpleNamespace(graphsafe_set_state=lambda new: calls.append(f"generator is {new}"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: calls.append("replay")))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: calls.append(f"{stream.name} is current"))
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "default_generators", (None, generator))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert hasattr(torch.Generator, "graphsafe_set_state")
    monkeypatch.setattr(torch, "Generator", lambda device: f"new on {device}")

    def work() -> None:
        calls.append("work")
        if breaks and calls.count("work") > capture.WARM_UP:
            raise RuntimeError("broken off")

    graph = capture.CudaGraph(torch.device("cuda", 1))
    warmed = ["side waits for main", "on side", "work", "work", "work", "back", "main waits for side"]
    before = [*warmed, "record on side", "work"]
    if breaks:
        with pytest.raises(RuntimeError, match="broken off"):
            graph.record(work)
        assert calls == [*before, "main is current", "generator is new on cuda:1"]
        return
    graph.record(work)
    graph.replay()
    assert calls == [*before, "recorded", "replay"]


def test_a_step_that_fails_eagerly_is_not_taken_for_one_that_cannot_be_recorded() -> None:
    step = on_gpu("cnn")
    step.train = lambda batch: torch.rand(-1)  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError, match="negative dimension"):
        proven(step, 0, silent, Tape)


def test_a_batch_of_another_shape_is_refused() -> None:
    step = on_gpu("cnn")
    fast = proven(step, 0, silent, Tape)
    step.stream._batch = 1  # type: ignore[attr-defined]  # would be spread over the whole buffer
    with pytest.raises(ValueError, match=r"a batch of \[1, 1, 28, 28\] where \[6, 1, 28, 28\] was recorded"):
        fast(0, 1e-3)


@pytest.mark.parametrize("task", ["mnist", "affnist", "multimnist", "two_digit"])
def test_streams_give_batches_of_one_shape_across_epochs(task: str) -> None:
    name = next(name for name in VARIANTS if task in tasks_of(name))
    stream = stream_of(task, VARIANTS[name])
    stream._batch = 7  # type: ignore[attr-defined]  # no divisor of an epoch
    assert COUNT % 7
    layouts = {tuple((t.shape, t.stride(), t.dtype) for t in stream.batch(step)) for step in range(3 * COUNT // BATCH)}
    assert len(layouts) == 1


def test_on_a_cpu_nothing_is_captured_nor_said() -> None:
    step = small_step("cnn")
    assert captured(step, 0, silent) is step


def test_capturing_can_be_turned_off_and_is_not_tried_with_code_from_outside(monkeypatch) -> None:
    monkeypatch.setattr(capture, "proven", lambda *_: "captured")
    step, said = small_step("capsnet-r3"), []
    step.device = torch.device("cuda")
    assert captured(step, 0, silent) == "captured"
    monkeypatch.setenv("CAPSBENCH_CAPTURE", "off")
    assert captured(step, 0, silent) is step
    monkeypatch.setenv("CAPSBENCH_CAPTURE", "perhaps")
    with pytest.raises(CapsbenchError, match="CAPSBENCH_CAPTURE is 'perhaps'; say on or off"):
        captured(step, 0, silent)
    monkeypatch.delenv("CAPSBENCH_CAPTURE")
    step.spec = step.spec.model_copy(update={"routing": "mine:route"})
    assert captured(step, 0, said.append) is step
    assert said == [
        "The training step is not captured: a routing from outside the package may decide anew in every step."
    ]


class Watching:
    """A probe that runs the model in evaluation mode, with random numbers drawn beside it."""

    def due(self, step: int, steps: int) -> bool:
        return step % 5 == 0

    def measure(self, model: nn.Module, step: int) -> dict[str, float]:
        torch.rand(7)
        return {"score": float(model(torch.ones(2, 1, 28, 28)).scores.sum())}


def looped(folder: Path, monkeypatch, recorder: type[Tape] | None, saved_after: int | None = None) -> Loop:
    """A loop of 23 steps; `saved_after`: one before it stopped there, with a checkpoint."""
    if recorder is None:
        monkeypatch.setattr("capsbench.training.loop.captured", lambda step, first, say: step)
    else:
        monkeypatch.setattr("capsbench.training.loop.captured", lambda *given: proven(*given, recorder))
    monkeypatch.setenv("CAPSBENCH_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr("capsbench.training.loop.ROWS", 4)

    def made() -> Loop:
        return Loop(
            on_gpu("cnn"),
            steps=23,
            training=Training(steps=23, batch=BATCH),
            epoch_size=COUNT,
            folder=folder,
            run_digest="one",
            probe=Watching(),
            meta={},
            say=lambda said: None if "going on" in said else silent(said),
        )

    if saved_after is not None:

        def stop(step: int, *_: object) -> None:
            if step > saved_after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            made().train(stop)
    loop = made()
    loop.train(lambda *_: None)
    return loop


def test_a_whole_loop_stopped_and_resumed_with_probes_is_the_same_recorded(tmp_path: Path, monkeypatch) -> None:
    eager = looped(tmp_path / "eager", monkeypatch, None)
    recorded = looped(tmp_path / "recorded", monkeypatch, Tape, saved_after=11)
    assert (eager.captured, recorded.captured, recorded.resumed) == (False, True, 1)
    assert bits(recorded.step) == bits(eager.step)
    assert recorded.curve == eager.curve

    def told(loop: Loop) -> list[dict[str, float]]:
        return [{key: value for key, value in row.items() if key != "images_per_second"} for row in loop.history]

    assert told(recorded) == told(eager)
    assert len(told(eager)) == 4
