"""Which files decide that a run is done, or evaluated: each of them is in the digest, and one that does not, is not."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capsbench import provenance
from capsbench.evaluation.done import evaluation_digest
from capsbench.plan import House
from capsbench.plan.done import is_done, training_source, trial_digest
from capsbench.provenance import PACKAGE, digest_of

PLAN = """
budget: reduced
seeds: [0]
training: {steps: 1}
tasks:
  mnist: {variants: [capsnet-kmeans]}
  affnist: {variants: [cnn-pool]}
  multimnist: {variants: [capsnet-r3-recon]}
  two_digit: {variants: [two-digit-kmeans]}
"""
TUNED = """
budget: reduced
seeds: [0]
training: {steps: 1}
tuning: {steps: 1, seeds: [1000], held_out: 40}
tasks:
  mnist: {variants: [cnn], tuned: true}
"""
EVERYWHERE = {
    *("training/together.py", "training/run.py", "training/loop.py", "training/step.py", "training/losses.py"),
    *("training/schedule.py", "training/device.py", "data/order.py", "data/counter.py", "models/build.py"),
    *("__init__.py", "training/__init__.py", "data/__init__.py", "models/__init__.py"),  # which run before theirs
}
DECIDES = {
    "mnist": {"data/mnist.py", "data/placed.py", "models/capsnet.py", "routing/kmeans.py", "models/decoder.py"},
    "affnist": {"data/affnist.py", "training/probe_affnist.py", "models/cnn.py"},
    "multimnist": {"data/multimnist.py", "data/placed.py", "routing/dynamic.py"},
    "two_digit": {"data/two_digit.py", "training/probe_two_digit.py", "models/two_digit.py", "routing/kmeans.py"},
}
MANIFEST = {"digest": "of the run", "weights": "of its weights"}
NOTHING = {"report/html.py", "cli/app.py", "routing/registry.py", "evaluation/mnist.py", "models/em_capsnet.py"}
EVALUATES = {
    "mnist": {"evaluation/mnist.py", "evaluation/predict.py", "evaluation/condition.py", "data/mnist.py"},
    "affnist": {"evaluation/affnist.py", "evaluation/curve.py", "data/affnist.py"},
    "multimnist": {"evaluation/multimnist.py", "evaluation/segmentation.py", "training/exact_set.py"},
    "two_digit": {"evaluation/two_digit.py", "training/scoring.py", "data/pairing.py"},
}


@pytest.mark.parametrize("name", ["pairing.py", "removed_since.py"])
def test_source_is_imported_at_once_and_what_was_edited_since_is_refused(name: str) -> None:
    """In a process of its own, whose modules nobody else has."""
    code = """
import os, sys
from capsbench import provenance
from capsbench.errors import ResourceError
roots = ["capsbench.evaluation.two_digit"]
before = provenance.source_digest(roots)
assert "capsbench.evaluation.two_digit" not in sys.modules
assert provenance.PACKAGE / "data" / "pairing.py" in provenance._read
provenance._read[provenance.PACKAGE / "data" / sys.argv[1]] = (0, 0)  # as if its digest was of what is there no more
try:
    provenance.import_source(roots)
except ResourceError as error:
    print(error)
assert "capsbench.data.pairing" in sys.modules
provenance.import_source(roots)  # all of it is imported: an edit changes nothing any more
"""
    said = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"{PACKAGE / 'data' / name} was changed after this command began; say it again.\n"


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / "plan.yaml").write_text(PLAN)
    return House.load(tmp_path / "plan.yaml")


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch):
    """Make the digests think that one file of the package says something else."""
    real = provenance._looked_at

    def change(name: str | None) -> None:
        if name is not None:
            assert (PACKAGE / name).is_file(), name
        provenance._package_digest.cache_clear()
        other = None if name is None else PACKAGE / name
        monkeypatch.setattr(
            provenance, "_looked_at", lambda path: ("x", real(path)[1]) if path == other else real(path)
        )

    yield change
    monkeypatch.undo()
    provenance._package_digest.cache_clear()


@pytest.mark.parametrize("task", DECIDES)
def test_what_decides_weights_is_in_the_digest_of_a_run(house: House, changed, task: str) -> None:
    (cell,) = [cell for cell in house.cells if cell.task == task]
    changed(None)
    before = training_source(house, cell)
    for name in EVERYWHERE | DECIDES[task]:
        changed(name)
        assert training_source(house, cell) != before, name
    for name in NOTHING - DECIDES[task]:
        changed(name)
        assert training_source(house, cell) == before, name


@pytest.mark.parametrize("task", EVALUATES)
def test_what_decides_metrics_is_in_the_digest_of_an_evaluation(house: House, changed, task: str) -> None:
    (cell,) = [cell for cell in house.cells if cell.task == task]
    changed(None)
    before = evaluation_digest(cell, MANIFEST)
    for name in EVALUATES[task]:
        changed(name)
        assert evaluation_digest(cell, MANIFEST) != before, name
    for name in ("report/html.py", "cli/app.py", "routing/registry.py"):
        changed(name)
        assert evaluation_digest(cell, MANIFEST) == before, name


@pytest.mark.parametrize(
    ("task", "said", "other"),
    [
        ("mnist", "[capsnet-kmeans]", "[capsnet-kmeans], test_images: 100"),
        ("affnist", "[cnn-pool]", "[cnn-pool], matched_at: 0.98"),
        ("multimnist", "[capsnet-r3-recon]", "[capsnet-r3-recon], segmentation_pairs: 50"),
    ],
)
def test_a_run_is_evaluated_again_when_an_option_of_evaluation_changes(
    house: House, tmp_path: Path, task: str, said: str, other: str
) -> None:
    assert said in PLAN
    (tmp_path / "other.yaml").write_text(PLAN.replace(said, other))
    first, second = (
        evaluation_digest(cell, MANIFEST)
        for plan in (house, House.load(tmp_path / "other.yaml"))
        for cell in plan.cells
        if cell.task == task
    )
    assert first != second


def test_a_run_is_evaluated_again_when_its_weights_change(house: House) -> None:
    """The digest of a training says what was asked for, not what came of it on which machine."""
    cell = house.cells[0]
    assert evaluation_digest(cell, MANIFEST | {"weights": "others"}) != evaluation_digest(cell, MANIFEST)


def test_what_judges_a_trial_is_in_the_digest_of_its_figure(tmp_path: Path, changed) -> None:
    (tmp_path / "tuned.yaml").write_text(TUNED)
    tuned = House.load(tmp_path / "tuned.yaml")
    trial = tuned.trials(tuned.cell("mnist", "cnn+tuned"))[0]
    changed(None)
    before = trial_digest(tuned, trial, 1000, "data")
    for name in ("training/tune.py", "data/mnist.py"):
        changed(name)
        assert trial_digest(tuned, trial, 1000, "data") != before, name
    changed("report/html.py")
    assert trial_digest(tuned, trial, 1000, "data") == before


def test_a_truncated_manifest_is_not_done(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"digest": "abc"')
    digests = {"run": "abc", "training_source": "of today"}
    assert is_done(tmp_path, digests) is None
    whole = {
        "digest": "abc",
        "status": "done",
        "weights": "w",
        "dataset": {},
        "run": {"task": 0, "variant": 0, "seed": 0},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(whole))
    assert is_done(tmp_path, digests) == whole
    assert is_done(tmp_path, {**digests, "run": "abd"}) is None
    for key in whole:
        (tmp_path / "manifest.json").write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        assert is_done(tmp_path, digests) is None


def plainly(node: Any) -> Any:
    """What a source's digest is of, as the published runs were named by it: lists of names and values, as JSON."""
    if isinstance(node, list):
        return [plainly(item) for item in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {key: value for key, value in ast.iter_fields(node) if key not in ("kind", "type_comment")}
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    if documented and ast.get_docstring(node):
        fields["body"] = fields["body"][1:]
    kept = sorted((key, value) for key, value in fields.items() if value not in (None, []))
    return [type(node).__name__, *([key, plainly(value)] for key, value in kept)]


ODD = '''
"""Words."""
from . import near
from capsbench.plan import House, runs
def documented():
    """Words alone."""
class Empty: ""
async def f(a, /, *b: int, c=1e400, **d) -> None:
    " \\n"
    import capsbench.errors as e, os
    return [u"\\u00e4\\ud800", b"\\xff", 1j, ..., -0.0, True, f"{a!r:>{b}}"]
match House:
    case {"a": [*_], **rest} | None: pass
'''


def test_the_digest_of_a_file_is_that_of_its_plain_definition(tmp_path: Path) -> None:
    (odd := tmp_path / "odd.py").write_text(ODD)
    files = [odd, *(path for name in ("models", "routing", "data") for path in (PACKAGE / name).glob("*.py"))]
    assert len(files) > 60
    for path in files:
        assert provenance._parse(path, path.read_bytes())[0] == digest_of(plainly(ast.parse(path.read_bytes()))), path
    assert provenance._parse(odd, odd.read_bytes())[1] == (
        "capsbench.errors",
        "capsbench.plan",
        "capsbench.plan.House",
        "capsbench.plan.runs",
    )
