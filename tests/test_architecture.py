"""docs/architecture.md's table, held: each stage imports only itself and what stands above it; the workflow, three."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from longest import LONGEST

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "capsbench"
ORDER = [
    "errors",
    "files",
    "known_sources",
    "provenance",
    "others",
    "plan",
    "data",
    "routing",
    "models",
    "training",
    "evaluation",
]
MAY_IMPORT = {stage: set(ORDER[: n + 1]) for n, stage in enumerate(ORDER)}
MAY_IMPORT["report"] = {"errors", "files", "provenance", "others", "plan", "report"}  # reads files, never a model
MAY_IMPORT["locks"] = {"errors", "locks"}
# never torch: below
MAY_IMPORT["pipeline"] = {"errors", "files", "provenance", "plan", "data", "evaluation", "locks", "pipeline"}
MAY_IMPORT["signals"] = {"signals"}
MAY_IMPORT["forks"] = {"errors", "forks"}  # of every job the first that is imported
MAY_IMPORT["fork_server"] = {"errors", "forks", "fork_server"}  # and cli, by name, once it is asked
MAY_IMPORT["bench"] = {*ORDER, "bench"}
MAY_IMPORT["cli"] = {*ORDER, "forks", "locks", "pipeline", "report", "bench", "cli"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found.update(name.split(".")[1] for name in names if name.startswith("capsbench.") and "__" not in name)
    return found


@pytest.mark.parametrize("stage", MAY_IMPORT)
def test_a_stage_imports_only_what_stands_above_it(stage: str) -> None:
    files = [PACKAGE / f"{stage}.py"] if (PACKAGE / f"{stage}.py").exists() else sorted((PACKAGE / stage).rglob("*.py"))
    assert files
    for path in files:
        assert imports(path) <= MAY_IMPORT[stage], path


def test_the_pipeline_knows_of_evaluation_what_is_done_and_no_more() -> None:
    lines = [line for path in (PACKAGE / "pipeline").rglob("*.py") for line in path.read_text().splitlines()]
    named = [line for line in lines if re.match(r"\s*(from|import) capsbench\.evaluation", line)]
    assert named
    assert all(line.strip().startswith("from capsbench.evaluation.done import ") for line in named)


def test_every_part_of_the_package_is_a_stage() -> None:
    parts = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p.is_dir() and any(p.glob("*.py")))}
    assert parts - {"__init__", "__main__"} == set(MAY_IMPORT)


def test_the_files_of_data_that_the_page_says_bring_no_torch_bring_none() -> None:
    (row,) = re.findall(r"^\| `capsbench/data/` \|.*$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    named = [f"capsbench.data.{name}" for name in re.findall(r"`(\w+)\.py`", row)]
    assert len(named) > 5
    code = f"import sys, {', '.join(named)}; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_the_snakefile_s_imports_bring_no_torch() -> None:
    code = (
        "import sys, capsbench.pipeline, capsbench.evaluation.done, capsbench.cli.app\n"
        "print([m for m in ('torch', 'pandas', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_workflow_knows_three_modules_of_the_package() -> None:
    files = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk"), *(ROOT / "workflow").rglob("*.py")]
    assert len(files) > 5
    lines = [line for path in files for line in re.findall(r"^\s*(?:from|import)\s.*", path.read_text(), re.MULTILINE)]
    named = {name for line in lines for name in re.findall(r"\bcapsbench\b(?:\.(\w+))?", line)}
    assert named == {"pipeline", "signals", "errors"}


def test_no_file_is_longer_than_a_head() -> None:
    for path in [*PACKAGE.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 350, path


def test_the_longest_test_files_are_there() -> None:
    assert set(LONGEST) <= {path.name for path in Path(__file__).parent.rglob("test_*.py")}
