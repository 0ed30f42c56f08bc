"""Whether seeds may train at once: recorded steps in turn, steps that draw random numbers, the room on a mocked GPU."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_steps import bits, go_on, small_step, with_its_rate_in_a_tensor
from tape import Tape

from capsbench.errors import CapsbenchError
from capsbench.training import together
from capsbench.training.capture import proven
from capsbench.training.together import Turn, draws, most_at_once, why_not_at_once


def turns_of(name: str, count: int = 3) -> list[Any]:
    """Steps of several seeds, recorded, as `why_not_at_once` asks for them; streams there are none."""

    def silent(said: str) -> None:
        raise AssertionError(said)

    turns = []
    for seed in range(count):
        step = with_its_rate_in_a_tensor(small_step(name))
        step.seed = seed
        way = proven(step, 0, silent, Tape)
        loop = SimpleNamespace(step=step, way=way, done=0)
        turns.append(SimpleNamespace(loop=loop, on=contextlib.nullcontext))
    return turns


@pytest.mark.parametrize("name", ["capsnet-r3-recon", "cnn", "em-matrix"])
def test_recorded_steps_that_take_turns_end_in_the_bits_of_each_alone(name: str) -> None:
    turns, others = turns_of(name), turns_of(name)
    assert why_not_at_once(turns) is None
    for turn, other in zip(turns, others, strict=True):
        assert bits(turn.loop.step) == bits(other.loop.step)  # left as they were
        go_on(other.loop.way, 0, 6)
    for number in range(6):
        for turn in turns:
            go_on(turn.loop.way, number, number + 1)
    assert [bits(turn.loop.step) for turn in turns] == [bits(other.loop.step) for other in others]


def test_steps_that_disturb_each_other_are_found_out_and_left_as_they_were() -> None:
    turns, others = turns_of("cnn"), turns_of("cnn")
    shared = torch.zeros(())  # as work space of a library: what one step leaves there, another one reads

    def disturbed(way):
        def call(step: int, rate: float, progress: float) -> None:
            way(step, rate * (1 + float(shared)), progress)
            shared.fill_(step + 1 if step < 2 else 0)

        return call

    for turn in turns:
        turn.loop.way = disturbed(turn.loop.way)
    assert why_not_at_once(turns) == "at once they ended in other bits than alone"
    for turn, other in zip(turns, others, strict=True):
        assert bits(turn.loop.step) == bits(other.loop.step)


@pytest.mark.parametrize(("name", "drawn"), [("capsnet-r3-recon", False), ("cnn", True), ("resnet-flops", False)])
def test_a_step_that_draws_random_numbers_is_known(name: str, drawn: bool) -> None:
    step, other = small_step(name), small_step(name)
    go_on(step, 0, 1)
    go_on(other, 0, 1)
    assert draws(step, step, 1) is drawn
    assert bits(step) == bits(other)


@pytest.mark.parametrize(
    ("said", "device", "most"),
    [
        ("", None, 1),
        ("", "cpu", 1),
        ("", "cuda", 5),
        ("3", None, 3),
        ("3", "cuda", 3),
        ("1", "cuda", 1),
        ("99", "cpu", 7),
    ],
)
def test_how_many_at_most(monkeypatch, said: str, device: str | None, most: int) -> None:
    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", said)
    assert most_at_once(7, None if device is None else torch.device(device)) == most


def test_never_more_go_at_once_than_torch_has_streams_for(monkeypatch) -> None:
    """It has 32, hands them out in a circle, and a seed takes two: two seeds on one stream would share work space."""
    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", "99")
    assert most_at_once(99, torch.device("cuda")) == 32 // 2


def test_in_its_turn_a_run_has_its_own_number_of_threads(monkeypatch) -> None:
    """Each goes on with those of its checkpoint, whatever those of the others are: bits differ with them."""
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    turns = [Turn(SimpleNamespace(resolved={"threads": n}), lambda *_: None, None) for n in (3, 5)]  # type: ignore[arg-type]
    for turn in (*turns, turns[0]):
        with turn.on():
            pass
    assert asked == [3, 5, 3]


@pytest.mark.parametrize("said", ["0", "-1", "two", "1.5", "²"])
def test_a_number_of_seeds_that_is_none_is_one_sentence(monkeypatch, said: str) -> None:
    monkeypatch.setenv("CAPSBENCH_SEEDS_AT_ONCE", said)
    with pytest.raises(CapsbenchError, match=f"CAPSBENCH_SEEDS_AT_ONCE is '{said}'; say a number from 1 on"):
        most_at_once(5)


@pytest.mark.parametrize(
    ("captured", "name", "free", "most", "why"),
    [
        (True, "capsnet-r3-recon", 100, 4, None),
        (True, "capsnet-r3-recon", 26, 3, None),  # 0.9 of it holds two more of 10 each
        (True, "capsnet-r3-recon", 11, 1, "memory holds but one"),
        (True, "cnn", 100, 1, "its step draws random numbers"),
        (False, "capsnet-r3-recon", 100, 1, "its step is not captured"),
    ],
)
def test_the_room_on_a_mocked_gpu(monkeypatch, captured: bool, name: str, free: int, most: int, why: str) -> None:
    """The decision alone: torch.cuda's figures are given, and the stream is none of CUDA's."""
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 14)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 200))
    step, said = small_step(name), []
    go_on(step, 0, 1)
    setting = SimpleNamespace(device=torch.device("cuda", 0), cell=SimpleNamespace(label="mnist/some"), say=said.append)
    loop = SimpleNamespace(captured=captured, step=step, way=step, done=1)
    first = SimpleNamespace(stream="own", loop=loop, run=SimpleNamespace(setting=setting), on=contextlib.nullcontext)
    assert together._room(first, 4, 4) == most  # type: ignore[arg-type]
    assert said == ([f"mnist/some: its seeds train one after another, since {why}."] if why else [])
