"""A user's mistake is one sentence on the error stream and exit code 2, never a traceback, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from places import REPOSITORY, Place
from rich.console import Console

from capsbench.cli import pack as packing
from capsbench.errors import CapsbenchError
from capsbench.plan import config_folder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, REPOSITORY)
    plan = place.plan()
    (place.folder / "broken.yaml").write_text(plan.read_text().replace("budget: reduced", "budget: reduecd"))
    (place.folder / "torn.yaml").write_text("name: [")
    (place.folder / "folder.yaml").mkdir()
    (place.folder / "other").mkdir()
    (place.folder / "other" / "tiny.yaml").write_text(plan.read_text().replace("steps: 4", "steps: 5"))
    return place


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["plan", "nowhere.yaml"], "There is no file nowhere.yaml"),
        (["plan", "tiney.yaml"], "There is no file tiney.yaml; did you mean 'tiny.yaml'?"),
        (
            ["verify", "tiny.yaml", "--random"],
            "tiny.yaml is a plan; name its results folder, such as results/tiny.",
        ),
        (["plan", "folder.yaml"], "folder.yaml is a folder; name a file in it."),
        (["plan", "torn.yaml"], "torn.yaml, line 1: not valid YAML"),
        (["plan", "broken.yaml"], "broken.yaml: budget is 'reduecd'; did you mean 'reduced'?"),
        (["train", "broken.yaml"], "broken.yaml: budget is 'reduecd'"),
        (
            ["run", "--keep-going", "tiny.yaml"],
            "Name the plan before Snakemake's options: `capsbench run PLAN --keep-going ...`.",
        ),
        (["run", "broken.yaml"], "broken.yaml: budget is 'reduecd'"),
        (["train", "tiny.yaml", "--task", "mnst"], "tiny.yaml has no task 'mnst'; did you mean 'mnist'?"),
        (["train", "tiny.yaml", "--variant", "cn"], "tiny.yaml has no variant 'cn'; did you mean 'cnn'?"),
        (
            ["evaluate", "tiny.yaml", "--task", "mnist", "--variant", "cn"],
            "tiny.yaml has no variant 'cn' of task mnist; did you mean 'cnn'?",
        ),
        (["train", "tiny.yaml", "--seed", "7"], "tiny.yaml: none of these rows has seed 7; the seeds are [0]."),
        (
            ["train", "tiny.yaml", "--seed", "7", "--task", "mnist", "--variant", "cnn"],
            "mnist/cnn has no seed 7; the seeds are [0].",
        ),
        (["evaluate", "--weights", "w.safetensors", "--seed", "1"], "--weights scores one model: leave out --task,"),
        (["train", "tiny.yaml", "--device", "cuda:99"], "There is no device 'cuda:99' here"),
        (
            ["train", "tiny.yaml", "--device", "cuda:\u00b2"],
            "There is no device 'cuda:\u00b2'; say cpu, cuda or cuda:<n>.",
        ),
        (["work", "tiny.yaml", "other/tiny.yaml"], "tiny.yaml and other/tiny.yaml are both called tiny, so both would"),
        (["bench", "tiny.yaml", "--json", "folder.yaml"], "--json is folder.yaml, a folder; name the file, such as"),
        (["bench", "tiny.yaml", "--figures", "tiny.yaml"], "--figures is tiny.yaml, a file; name a folder."),
        (["variants", "capsnet-r33"], "There is no variant 'capsnet-r33'; did you mean 'capsnet-r"),
        (["report", "nowhere"], "nowhere/plan.json is not there"),
        (["run", "tiny.yaml", "--seed", "1"], "`capsbench run` takes no --seed: it runs a whole plan."),
        (["run", "tiny.yaml", "-n", "--task=mnist"], "`capsbench run` takes no --task=mnist: it runs a whole plan."),
        (
            ["run", "tiny.yaml", "--configfile", "x.yaml"],
            "takes no --configfile: it runs the plan that is named first.",
        ),
        (["run", "tiny.yaml", "-n", "--dir=x"], "`capsbench run` takes no --dir: it works where it is called;"),
        (["run", "tiny.yaml", "-dx"], "`capsbench run` takes no -dx: it works where it is called;"),
        (["run", "tiny.yaml", "-s", "Snakefile"], "`capsbench run` takes no -s: it runs capsbench's own."),
        (["run", "tiny.yaml", "--no-such-option"], "Snakemake does not take --no-such-option"),
    ],
)
def test_a_mistake_is_one_sentence(place, arguments: list[str], sentence: str) -> None:
    said = place.capsbench(*arguments)
    assert said.code == 2
    assert "Traceback" not in said.text
    last = said.err.strip().splitlines()[-1]
    assert last.startswith("capsbench: ")
    assert sentence in last
    assert last.endswith((".", "?"))
    if "--no-such-option" not in arguments:  # there Snakemake prints its usage before
        assert said.err.count("\n") == 1
    assert not (place.results / "runs").exists()
    assert not (place.root / "tiny").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["plan"],
        ["train", "tiny.yaml", "--seed", "x"],
        ["work", "tiny.yaml", "--minutes", "inf"],
        ["work", "tiny.yaml", "--lent", "nan"],
        ["bench", "--threads", "1025"],
        ["verify", "scratch", "--threads", "1025"],
    ],
)
def test_a_command_line_that_cannot_be_read_says_how(place, arguments: list[str]) -> None:
    said = place.capsbench(*arguments)
    assert said.code == 2
    assert "Usage: capsbench" in said.err
    assert "Traceback" not in said.text


def test_results_that_cannot_be_written_are_a_sentence(place) -> None:
    place.root.write_text("a file in the place of the folder")
    for command in ("train", "work"):
        said = place.capsbench(command, "tiny.yaml", "--variant", "cnn")
        assert said.code == 4
        assert said.err.startswith(f"capsbench: {place.root}")
        assert "CAPSBENCH_RESULTS" in said.err
        assert "Traceback" not in said.text


def test_the_data_of_the_suite_s_own_plan_need_no_name_and_no_clone_to_stand_in(place) -> None:
    said = place.capsbench("data")
    assert said.code == 0, said.text
    assert "quick.yaml: UCI digits, not MNIST from" in said.out


def test_a_disk_s_complaint_is_a_sentence_wherever_it_comes_up(place) -> None:
    said = place.capsbench("data", "tiny.yaml", "--done", "broken.yaml/data.json")
    assert said.code == 4
    assert said.err == "capsbench: broken.yaml cannot be read or written (File exists).\n"


def test_an_output_that_is_closed_is_no_mistake(place) -> None:
    place.plan(variants="[cnn]")
    shell = ("-c", "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])")
    said = place.ask(*shell, "-m", "capsbench", "train", "tiny.yaml")
    assert (said.code, said.err) == (0, "")
    assert (place.results / "runs/mnist/cnn/seed-0/manifest.json").is_file()


@pytest.mark.slow
def test_altered_weights_are_a_sentence(place) -> None:
    place.plan(variants="[cnn]")
    assert place.capsbench("train", "tiny.yaml").code == 0
    weights = place.results / "runs/mnist/cnn/seed-0/weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    said = place.capsbench("evaluate", "tiny.yaml")
    assert said.code == 2
    assert said.err.startswith("capsbench: ")
    assert "altered" in said.err
    assert "Traceback" not in said.text
    weights.unlink()
    said = place.capsbench("evaluate", "tiny.yaml")
    assert said.code == 2
    assert said.err.startswith(f"capsbench: {weights.parent} has no weights.safetensors (published runs and those that")
    assert "Traceback" not in said.text


@pytest.mark.slow
def test_weights_of_another_training_than_the_manifest_s_give_no_figure(place) -> None:
    """As where results come back from another machine into a folder in which the run was trained before."""
    place.plan(variants="[cnn]", seeds=[0, 1])
    assert place.capsbench("train", "tiny.yaml").code == 0
    cell = place.results / "runs/mnist/cnn"
    shutil.copy(cell / "seed-1/weights.safetensors", cell / "seed-0")
    words = "seed-0/weights.safetensors is not from the training that manifest.json beside it describes"
    for command in (["evaluate", "tiny.yaml"], ["weights", cell / "seed-0", "--to", "small.safetensors"]):
        said = place.capsbench(*command)
        assert said.code == 2, said.text
        assert words in said.err
        assert "Traceback" not in said.text
    assert not (cell / "seed-0/test/metrics.json").exists()
    assert (cell / "seed-1/test/metrics.json").exists()  # one run's file keeps no other from its figure
    assert not (place.folder / "small.safetensors").exists()


def test_what_was_unpacked_is_not_packed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "is_packed", lambda: True)  # as PACKED.json says of such a folder
    monkeypatch.setattr(packing, "REPOSITORY", tmp_path)
    with pytest.raises(CapsbenchError, match="This was unpacked from an archive; pack from a clone"):
        packing.pack(Console(), [config_folder() / "smoke.yaml"], tmp_path / "out.tar.gz", "3.12", None)
    assert list(tmp_path.iterdir()) == []
