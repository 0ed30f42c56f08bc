"""examples/custom_routing goes through training, evaluation and report; its file decides its runs and no others."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from capsbench.cli.inputs import try_routings
from capsbench.errors import RoutingError
from capsbench.models import repeatable
from capsbench.plan import House

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_routing"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example's plan and routing, a few steps long."""
    folder = tmp_path / "example"
    folder.mkdir()
    shutil.copy(EXAMPLE / "my_routing.py", folder)
    plan = yaml.safe_load((EXAMPLE / "custom-routing.yaml").read_text())
    plan["width"] = 0.0625
    plan["training"] |= {"steps": 6, "batch": 8}
    plan["seeds"] = [0]
    plan["tasks"]["mnist"] |= {"test_images": 60, "routing_images": 20}
    plan["cost"] = {"batch": 4, "repetitions": 1}
    (folder / "custom-routing.yaml").write_text(yaml.safe_dump(plan))
    return folder


def capsbench(folder: Path, *arguments: object) -> tuple[int, str]:
    environment = {key: value for key, value in os.environ.items() if key != "CAPSBENCH_DATA"}
    environment |= {
        "CAPSBENCH_CACHE": str(folder / "cache"),
        "CAPSBENCH_STAND_IN": "1",
        "CAPSBENCH_RESULTS": str(folder / "results"),
        "CAPSBENCH_DEVICE": "cpu",  # what is expected here is a CPU's, also where there is a GPU
        "TMPDIR": str(folder.parent),  # a GPU's lock lies there
    }
    command = [sys.executable, "-m", "capsbench", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "my_routing.py").read_text().splitlines()) < 40


def test_it_is_trained_evaluated_and_reported_and_its_file_decides_its_runs(example: Path) -> None:
    plan = example / "custom-routing.yaml"
    for stage in (["train", "--evaluate"], ["cost"], ["report"]):
        code, said = capsbench(example, *stage, plan)
        assert code == 0, said
    results = example / "results" / "custom-routing-digits"
    with (results / "tables" / "mnist.csv").open() as stream:
        rows = {row["variant"]: row for row in csv.DictReader(stream) if row["metric"] == "error"}
    assert list(rows) == ["capsnet-r3-recon", "my_routing.cosine", "cosine-sharp"]
    assert all(row["n"] == "1" and 0 <= float(row["mean"]) <= 100 for row in rows.values())
    with (results / "tables" / "routing.csv").open() as stream:
        looked_at = {row["variant"] for row in csv.DictReader(stream) if row["metric"] == "flips_r100"}
    assert looked_at == set(rows)
    with (results / "tables" / "cost.csv").open() as stream:
        assert [row["variant"] for row in csv.DictReader(stream)] == list(rows)
    caption = (results / "figures" / "routing.txt").read_text()
    assert "Without logits from pass to pass: my_routing.cosine and cosine-sharp." in caption
    assert "my_routing:cosine" in (results / "report.html").read_text()
    assert "Cosine routing, sharpness 16" in (results / "tables" / "mnist.md").read_text()

    code, said = capsbench(example, "train", plan)
    assert said.count("done already") == 3
    file = example / "my_routing.py"
    file.write_text(file.read_text().replace("sharpness: float = 4.0", "sharpness: float = 5.0"))
    code, said = capsbench(example, "train", plan)
    assert code == 0
    assert "mnist/capsnet-r3-recon seed 0: done already" in said
    for variant in ("my_routing.cosine", "cosine-sharp"):
        assert f"mnist/{variant} seed 0: done after 6 steps" in said


def test_a_mistake_is_told_before_any_variant_of_the_plan_trains(example: Path) -> None:
    file = example / "my_routing.py"
    file.write_text(file.read_text().replace("return Routed(v, c, length(v))", "return Routed(v, c, v)"))
    code, said = capsbench(example, "train", example / "custom-routing.yaml")
    assert code == 2
    plan = example / "custom-routing.yaml"
    assert said.strip().splitlines()[-1] == (
        f"capsbench: {plan}: routing 'my_routing:cosine': it must return scores of shape [3, 10], not [3, 10, 16]."
    )
    assert not list((example / "results").rglob("manifest.json"))
    code, said = capsbench(example, "train", example / "custom-routing.yaml", "--variant", "cosine-sharp")
    assert f"capsbench: {plan}: variant cosine-sharp: routing 'my_routing:cosine': it must return" in said
    for command in ("run", "work"):
        code, said = capsbench(example, command, plan)
        assert code == 2, said
        assert f"capsbench: {plan}: routing 'my_routing:cosine': it must return" in said.splitlines()[-1]
    assert not list((example / "results").rglob("manifest.json"))


TRACE = "its trace must be a list with one capsbench.routing.Pass(logits [B, I, J]"
LOOP = "for _ in range(iterations):"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (LOOP, f"assert iterations < 30, 'too many'\n    {LOOP}", "at 30 passes, which its evaluation asks for"),
        (LOOP, f"assert iterations < 30, 'too many'\n    {LOOP}", "my_routing.py, line 19: it raised AssertionError"),
        ("iterations: int = 3, *,", "iterations: int = 3, trace: bool = False, *,", None),
        ("return Routed(v, c, length(v))", "return Routed(v, c, length(v), [b])", TRACE),
        ("return Routed(v, c, length(v))", "return Routed(v, c, length(v), b)", TRACE),
        ("return Routed(v, c, length(v))", "return Routed(v, c, length(v), True)", TRACE),
        ("return Routed(v, c, length(v))", "return Routed(v, c, length(v), (Pass(None, c, v),))", TRACE),
        ("return Routed(v, c, length(v))", "return Routed(v, c, length(v), (p for p in [Pass(b, c, v)]))", TRACE),
        (
            "return Routed(v, c, length(v))",
            "return Routed(v, c, length(v), (Pass(b[0], c, v),))",
            TRACE,
        ),
        (
            "return Routed(v, c, length(v))",
            "return Routed(v, c, length(v), (Pass(b, c, v),))",
            "its trace has 1 entry at 100 passes; it must be a list with one",
        ),
        ("return Routed(v, c, length(v))", "return Routed(v, c, length(v), [Pass(b, c, v)] * iterations)", None),
    ],
)
def test_what_the_evaluation_will_ask_of_a_routing_is_tried_before_it_trains(
    example: Path, old: str, new: str, expected: str | None
) -> None:
    file = example / "my_routing.py"
    text = file.read_text().replace("import Routed,", "import Pass, Routed,")
    assert old in text
    file.write_text(text.replace(old, new))
    house = House.load(example / "custom-routing.yaml", "uci-digits")
    if expected is None:
        try_routings(Console(quiet=True), house, house.cells)
        return
    with pytest.raises(RoutingError) as error:
        try_routings(Console(quiet=True), house, house.cells)
    assert expected in str(error.value)
    plan = yaml.safe_load((example / "custom-routing.yaml").read_text())
    plan["tasks"]["mnist"]["routing_images"] = 0
    (example / "custom-routing.yaml").write_text(yaml.safe_dump(plan))
    house = House.load(example / "custom-routing.yaml", "uci-digits")
    try_routings(Console(quiet=True), house, house.cells)  # then nobody will ask for it


def test_it_is_said_what_is_tried_before_it_may_take_its_time(
    example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House.load(example / "custom-routing.yaml", "uci-digits")
    own = [cell for cell in house.cells if ":" in cell.routing]
    heard = []
    build = repeatable.build_and_try_twice
    monkeypatch.setattr(
        repeatable, "build_and_try_twice", lambda *of: heard.append(capsys.readouterr().out) or build(*of)
    )
    try_routings(Console(width=200), house, house.cells)  # the suite's own routings in it are not tried
    assert len(own) < len(house.cells)
    assert heard == [f"{cell.label}: routing {cell.routing!r} is tried on a few images\n" for cell in own]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (LOOP, f"raise SystemExit(0)\n    {LOOP}", 19),
        ("import torch\n", "import torch\n\nraise SystemExit(0)\n", 5),
    ],
)
def test_a_routing_that_ends_the_process_is_a_mistake_like_any_other(
    example: Path, old: str, new: str, line: int
) -> None:
    """Python's own exit would end the command too, with exit code 0 and not a word."""
    file = example / "my_routing.py"
    file.write_text(file.read_text().replace(old, new))
    house = House.load(example / "custom-routing.yaml", "uci-digits")
    with pytest.raises(RoutingError, match=f"my_routing.py, line {line}: it raised SystemExit: 0."):
        try_routings(Console(quiet=True), house, house.cells)


def test_passes_are_not_counted_of_a_routing_that_takes_none(example: Path) -> None:
    file = example / "my_routing.py"
    file.write_text(
        file.read_text().replace("iterations: int = 3, *,", "*, iters: int = 3,").replace("(iterations)", "(iters)")
    )
    plan = yaml.safe_load((example / "custom-routing.yaml").read_text())
    plan["tasks"]["mnist"]["axes"] = {"iterations": {"values": [1, 3], "variants": ["my_routing:cosine"]}}
    (example / "custom-routing.yaml").write_text(yaml.safe_dump(plan))
    house = House.load(example / "custom-routing.yaml", "uci-digits")
    with pytest.raises(RoutingError, match="iterations: 1, but its routing takes no `iterations`"):
        try_routings(Console(quiet=True), house, house.cells)


def test_variants_shows_it_as_the_readme_says(example: Path) -> None:
    code, said = capsbench(example, "variants", "my_routing:cosine", "--folder", example)
    assert code == 0, said
    shown = (EXAMPLE / "README.md").read_text().split("```")[3].strip()
    assert "8,215,568 parameters on mnist (28x28)" in shown
    assert said.endswith(shown + "\n")
    code, said = capsbench(example, "variants", "my_routing:cosin", "--folder", example)
    assert code == 2
    assert "my_routing.py has no 'cosin'; did you mean 'cosine'?" in said
