"""The terminal: what each command prints, in a process of its own where more than its help is asked for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from places import PATIENCE, REPOSITORY, Place
from typer.testing import CliRunner

from capsbench.cli.travel import app  # with all commands
from capsbench.locks import sole
from capsbench.provenance import machine

COMMANDS = sorted(command.name or command.callback.__name__ for command in app.registered_commands)
ROWS = re.findall(r"^\| (`capsbench .*?) \| (.*) \|$", (REPOSITORY / "docs" / "commands.md").read_text(), re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, REPOSITORY)


def test_help_names_every_command(place) -> None:
    said = place.capsbench("--help", COLUMNS="120")
    assert said.code == 0
    for command in COMMANDS:
        assert re.search(rf"^\W*{command}\s+[A-Z]", said.out, re.MULTILINE), command


def help_of(command: str) -> str:
    """What a command's --help prints, asked in this process: a start of its own is a second for each of them."""
    said = CliRunner().invoke(app, [command, "--help"], prog_name="capsbench", env={"COLUMNS": "120"})
    assert said.exit_code == 0, said.output
    return said.output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_says_what_it_does(command: str) -> None:
    said = help_of(command)
    assert f"Usage: capsbench {command}" in said
    assert re.search(r"^ [A-Z].*\w", said, re.MULTILINE)  # its first sentence
    assert "--done" not in said  # the pipeline's own
    if command in ("train", "evaluate"):
        for option in ("--task", "--variant", "--seed", "--device", "--threads"):
            assert option in said


def test_the_table_of_commands_has_every_one_and_only_options_that_there_are() -> None:
    named = []
    for first, what in ROWS:
        commands = [words.removeprefix("capsbench ").split()[0] for words in re.findall(r"`([^`]+)`", first)]
        helps = "".join(map(help_of, commands))
        for option in re.findall(r"--[a-z-]+", first + what):
            assert re.search(rf"{option}\b", helps), (commands, option)
        named += commands
    assert sorted(named) == COMMANDS


def test_the_module_is_the_command(place) -> None:
    place.plan()
    script = Path(sys.executable).parent / "capsbench"
    asked = subprocess.run([script, "plan", "tiny.yaml"], cwd=place.folder, capture_output=True, text=True, check=True)
    said = place.capsbench("plan", "tiny.yaml", CAPSBENCH_RESULTS="")
    assert asked.stdout == said.out
    assert place.capsbench("--version").out == "capsbench 0.1.0\n"


def test_plan_lists_its_runs_and_what_it_reduces(place) -> None:
    place.plan(seeds=[3, 1, 4])
    said = place.capsbench("plan", "tiny.yaml")
    assert said.code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.out.splitlines() if "│" in line]
    variants = ("cnn", "capsnet-r3-recon", "diverging")
    assert rows == [["mnist", variant, "3 1 4", "4", "16"] for variant in variants]
    assert "4 steps instead of 300,000 steps" in said.out
    assert "9 runs in 3 cells, budget reduced" in said.out
    assert not place.root.exists()


def test_the_paper_s_plan_reduces_nothing_but_what_it_says(place) -> None:
    said = place.capsbench("plan", REPOSITORY / "config" / "paper.yaml", COLUMNS="120")
    assert said.code == 0
    less = dict(re.findall(r"^(\w+), with less than the paper's protocol: (.*)$", said.out, re.MULTILINE))
    assert less == {
        "mnist": "46,875 steps instead of the authors' 300,000",
        "affnist": "matched on 40,000 of 320,000 images",
        "multimnist": "6,000,000 training pairs seen, of the paper's 60,000,000; 3 of 5 seeds",
        "two_digit": "nothing",
    }
    steps = dict(re.findall(r"(\w+) +│ [\w-]+ +│ [\d ]+ +│ ([\d,]+) ", said.out))
    assert steps == {"mnist": "46,875", "affnist": "19,532", "multimnist": "46,875", "two_digit": "9,375"}


def variants(*names: str, width: int) -> str:
    said = CliRunner().invoke(app, ["variants", *names], env={"COLUMNS": str(width)})
    assert said.exit_code == 0, said.output
    return said.output


def test_variants_lists_every_variant_with_its_parameters() -> None:
    said = variants(width=250)
    rows = {line.split("│")[1].strip(): line for line in said.splitlines() if line.startswith("│")}
    assert {"cnn", "capsnet-r1", "capsnet-r1-recon", "capsnet-r3", "capsnet-r3-recon"} <= rows.keys()
    assert "8,215,568" in rows["capsnet-r3-recon"]
    assert "35,445,522" in rows["cnn"]
    narrow = variants(width=80)
    assert all(f"│ {name} " in narrow for name in rows if name)  # to be copied, so never cut
    assert "35,445,522" in narrow


def test_variants_shows_one_whole(place) -> None:
    said = place.capsbench("variants", "capsnet-r3")
    assert said.code == 0
    assert "iterations: 3" in said.out
    assert "reconstruction: none" in said.out
    assert "6,804,224 parameters on mnist (28x28)" in said.out  # in a process of its own, with all that it prints


CUSTOM = REPOSITORY / "examples" / "custom_routing"


def test_variants_lists_and_shows_those_of_a_plan() -> None:
    """The plan's own too, with what has become of every key; no other command tells."""
    plan = CUSTOM / "custom-routing.yaml"
    said = variants("--plan", str(plan), width=200)
    rows = [line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│")]
    assert rows == ["capsnet-r3-recon", "my_routing:cosine", "cosine-sharp"]
    assert "routing my_routing:cosine, sharpness 16.0" in said
    shown = variants("cosine-sharp", "--plan", str(plan), width=200)
    assert shown.startswith("cosine-sharp: Cosine routing, sharpness 16\n")
    for line in ("routing: my_routing:cosine", "routing_options: {sharpness: 16.0}", "iterations: 3", "mask: class"):
        assert f"\n{line}\n" in shown
    assert "tried on small batches" in shown
    assert "8,215,568 parameters on mnist (28x28)" in shown
    assert "6,804,224 parameters on mnist" in variants("capsnet-r3", "--plan", str(plan), width=200)
    narrow = variants("capsnet-share-type", "--plan", str(REPOSITORY / "config" / "overnight.yaml"), width=200)
    assert "7,618,368 parameters on affnist (40x40)\n" in narrow
    assert "\n315,744 parameters on affnist at this plan's width of 0.125\n" in narrow


def test_variants_of_a_plan_are_looked_for_beside_it(tmp_path: Path) -> None:
    plan = CUSTOM / "custom-routing.yaml"
    for args, sentence in (
        (["cosine-sharpe", "--plan", str(plan)], "There is no variant 'cosine-sharpe'; did you mean 'cosine-sharp'?"),
        (["--plan", str(plan), "--folder", str(tmp_path)], "--plan and --folder exclude each other"),
        (["--plan", str(tmp_path / "none.yaml")], "There is no file"),
    ):
        done = CliRunner().invoke(app, ["variants", *args])
        assert done.exit_code != 0
        assert sentence in str(done.exception)


def test_data_says_which_and_prints_checksums(place) -> None:
    place.plan()
    said = place.capsbench("data", "tiny.yaml")
    assert said.code == 0
    assert re.search(r"^[0-9a-f]{64}  uci-digits$", said.out, re.MULTILINE)
    assert "UCI digits, not MNIST from scikit-learn" in said.out
    assert "no number that follows is an MNIST number" in said.out
    assert not place.root.exists()


def test_train_evaluate_and_report_one_after_the_other(place) -> None:
    place.plan(variants="[capsnet-r3-recon]")
    said = place.capsbench("evaluate", "tiny.yaml")
    assert said.code == 2
    assert said.err.startswith("capsbench: mnist/capsnet-r3-recon seed 0 is not trained")
    assert "run `capsbench train tiny.yaml --task mnist --variant capsnet-r3-recon` first." in said.err

    said = place.capsbench("train", "tiny.yaml", "--task", "mnist", "--seed", 0, "--device", "cpu")
    assert said.code == 0
    assert "mnist/capsnet-r3-recon seed 0: step 4 of 4, loss" in said.out
    assert "seed 0: done after 4 steps" in said.out
    seed_0 = "mnist/capsnet-r3-recon seed 0: done already"
    assert place.capsbench("train", "tiny.yaml").out == f"{seed_0}\n"
    told = place.capsbench("train", "tiny.yaml", CAPSBENCH_STAND_IN="").out
    assert "no number that follows is an MNIST number" in told  # of a command that nobody has told before
    again = place.capsbench("train", "tiny.yaml", "--tensorboard")  # which has no steps to write of
    assert again.out == f"{seed_0}, so no TensorBoard events were written\n"

    said = place.capsbench("evaluate", "tiny.yaml")
    assert said.code == 0
    assert re.search(r"mnist/capsnet-r3-recon seed 0, test: error [\d.]+ %", said.out)
    assert "evaluated already" in place.capsbench("evaluate", "tiny.yaml").out

    said = place.capsbench("report", "tiny.yaml")
    assert said.code == 0
    assert "outdated" not in said.out
    assert (place.results / "report.html").is_file()
    place.plan(variants="[capsnet-r3-recon]", test_images=7)
    said = place.capsbench("report", "tiny.yaml")
    assert "seed-0/test: outdated: scored with options or source code other than" in said.out
    (place.results / "report.html").unlink()
    (place.folder / "tiny.yaml").unlink()
    said = place.capsbench("report", place.results)  # the folder alone is enough
    assert said.code == 0
    assert (place.results / "report.html").is_file()
    assert (place.results / "tables" / "mnist.csv").is_file()


@pytest.mark.slow
def test_train_that_evaluates_leaves_what_both_commands_leave(place, tmp_path) -> None:
    place.plan(variants="[capsnet-r3-recon]")
    said = place.capsbench("train", "tiny.yaml", "--evaluate")
    assert said.code == 0, said.text
    assert re.search(r"mnist/capsnet-r3-recon seed 0, test: error [\d.]+ %", said.out)
    # the evaluation's own job then ends without torch, which costs more than all else that it does
    code = "import runpy, sys\ntry:\n    runpy.run_module('capsbench', run_name='__main__')\nfinally:\n"
    again = place.ask("-c", code + "    print('torch' in sys.modules)", "evaluate", "tiny.yaml")
    assert again.out.splitlines() == ["mnist/capsnet-r3-recon seed 0: evaluated already", "False"], again.text

    (tmp_path / "apart").mkdir()
    apart = Place(tmp_path / "apart", REPOSITORY)
    apart.plan(variants="[capsnet-r3-recon]")
    for command in ("train", "evaluate"):
        assert apart.capsbench(command, "tiny.yaml").code == 0
    at_once, alone = (
        {path.relative_to(p.root): path for path in p.root.rglob("*") if path.parent.name in ("test", "routing")}
        for p in (place, apart)
    )
    assert at_once.keys() == alone.keys()
    assert {path.name for path in alone} >= {"metrics.json", "predictions.npz", "perturbations.npz", "iterations.csv"}
    for name, path in alone.items():
        if path.name == "metrics.json":
            one, other = (json.loads(p.read_text()) | {"seconds": 0} for p in (at_once[name], path))
            assert one == other
        else:
            assert at_once[name].read_bytes() == path.read_bytes(), name


def test_a_run_that_another_process_has_evaluated_meanwhile_is_not_evaluated_again(place, tmp_path: Path) -> None:
    place.plan(variants="[cnn]")
    assert place.capsbench("train", "tiny.yaml", "--evaluate").code == 0
    run, aside = place.results / "runs/mnist/cnn/seed-0", tmp_path / "aside"
    (run / "test").rename(aside)
    before = (aside / "metrics.json").read_bytes()
    with sole(run, print):  # as the other process holds it
        waiting = place.start("-m", "capsbench", "evaluate", "tiny.yaml")
        first = waiting.stdout.readline()
        aside.rename(run / "test")
    rest, _ = waiting.communicate(timeout=PATIENCE)
    assert "another process is at work" in first
    assert "evaluated already" in rest
    assert waiting.returncode == 0
    assert (run / "test" / "metrics.json").read_bytes() == before


def test_a_checkpoint_that_cannot_be_read_is_not_passed_over(place) -> None:
    place.plan(variants="[cnn]")
    last = place.results / "runs/mnist/cnn/seed-0/checkpoint/last.safetensors"
    last.mkdir(parents=True)  # a folder: root may read every file
    said = place.capsbench("train", "tiny.yaml")
    assert said.code == 4, said.text
    assert "last.safetensors cannot be read: Is a directory; make it readable, or remove it" in said.err
    assert "Traceback" not in said.text


def test_a_terminal_that_is_not_utf_8_ends_no_command(place) -> None:
    plan = place.plan()
    plan.write_text(plan.read_text().replace("about: A few", "about: From CNN → CapsNet in a few"))
    said = place.capsbench("plan", "tiny.yaml", PYTHONIOENCODING="ascii", COLUMNS="200")
    assert said.code == 0, said.text
    assert r"From CNN \u2192 CapsNet in a few" in " ".join(said.out.split())


def test_words_in_brackets_are_printed_as_they_are(place) -> None:
    place.plan()
    plan = place.folder / "tiny.yaml"
    plan.write_text(plan.read_text().replace("about: A few", "about: Old rates [/draft] and [bold] few"))
    said = place.capsbench("plan", "tiny.yaml", COLUMNS="200")
    assert said.code == 0, said.text
    assert "Old rates [/draft] and [bold] few" in " ".join(said.out.split())


@pytest.mark.slow
def test_train_evaluates_what_an_earlier_call_only_trained(place) -> None:
    place.plan(variants="[cnn]", seeds=[0, 1])
    assert place.capsbench("train", "tiny.yaml", "--seed", 0).code == 0
    for seeds in ((0, 1), ()):
        said = place.capsbench("train", "tiny.yaml", "--evaluate")
        assert said.code == 0, said.text
        assert tuple(s for s in (0, 1) if f"mnist/cnn seed {s}, test: error" in said.out) == seeds
    shutil.rmtree(place.results / "runs/mnist/cnn/seed-1/test")
    said = place.capsbench("train", "tiny.yaml", "--evaluate")  # with nothing left to train
    assert "seed 0: evaluated already" in said.out
    assert "seed 1, test: error" in said.out


@pytest.mark.usefixtures("no_data", "results")
def test_doctor_finds_nothing_wrong_and_then_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock of a machine without a GPU and with room: whoever runs this may have another one."""
    here = {**machine(), "gpu": None, "driver": None}
    free = [100]  # GB
    monkeypatch.setenv("CAPSBENCH_DEVICE", "cpu")
    monkeypatch.setattr("capsbench.cli.doctor.machine", lambda: here)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0] * 2**30))
    said = CliRunner().invoke(app, ["doctor"])
    assert said.exit_code == 0, said.output
    for word in (
        "python",
        "torch",
        "snakemake",
        "processor",
        "trains on",
        "computes in      float32",
        "MNIST",
        "GB free",
        "Nothing is wrong.",
    ):
        assert word in said.output
    free[0], here["gpu"] = 1, "Mock 1"
    monkeypatch.setattr("capsbench.cli.doctor.gpus", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("capsbench.cli.doctor.__file__", "/installed/capsbench/cli/doctor.py")
    monkeypatch.setenv("CAPSBENCH_DATA", "not/there")
    monkeypatch.setenv("CAPSBENCH_DEVICE", "cuda:99")
    said = CliRunner().invoke(app, ["doctor"])
    assert said.exit_code == 1
    assert said.output.count("wrong: ") == 5
    assert "There is a Mock 1, but this torch (" in said.output
    assert "There is no Snakefile next to the package" in said.output
    assert "CAPSBENCH_DEVICE is cuda:99, but the devices here are cpu" in said.output
    assert "not/there, which CAPSBENCH_DATA names for MNIST, is not a folder that exists" in said.output
    assert "has 1.0 GB free; the paper's plan needs " in said.output
    assert "Nothing is wrong." not in said.output


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("name", ["file", "file/below", "loop", 300 * "x"])
def test_doctor_says_where_results_cannot_be(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("CAPSBENCH_RESULTS", str(tmp_path / name))
    said = CliRunner().invoke(app, ["doctor"])
    assert said.exit_code == 1, said.output
    assert "name another with CAPSBENCH_RESULTS." in " ".join(said.output.split())


@pytest.mark.parametrize("cores", ["0", "-1", "two"])
def test_snakemake_is_not_asked_to_run_on_no_core(cores: str) -> None:
    said = CliRunner().invoke(app, ["run", "config/quick.yaml", "--cores", cores])
    assert said.exit_code == 2
    assert "is neither a number of at least 1 nor `all`" in " ".join(said.output.replace("│", " ").split())
