"""What is known of the package's files: as right as parsing them, and nothing that a command cannot do without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import copy_source

ASK = """
import ast, sys
parsed, real = [], ast.parse
ast.parse = lambda *given, **named: parsed.append(named["filename"]) or real(*given, **named)
from capsbench import provenance
print(provenance.source_digest(["capsbench.evaluation.mnist"]), len(parsed))
"""
EDITED = "data/mnist.py"  # which that root imports


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_source(tmp_path_factory.mktemp("known") / "clone")


@pytest.fixture
def known(clone: Path) -> Path:
    """The file that another process has left."""
    ask(clone)
    (file,) = (clone / "capsbench" / "__pycache__").glob("sources.*.json")
    return file


def ask(clone: Path, *options: str, **environment: str) -> tuple[str, int]:
    """The digest of an evaluation in a process of its own, and how many files that parsed."""
    environment = {**os.environ, "PYTHONPATH": str(clone), **environment}
    command = [sys.executable, *options, "-c", ASK]
    done = subprocess.run(command, env=environment, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    digest, parsed = done.stdout.split()
    return digest, int(parsed)


def test_a_second_process_parses_nothing_and_says_the_same(clone: Path, known: Path) -> None:
    digest, parsed = ask(clone)
    assert parsed == 0
    known.unlink()
    again, parsed = ask(clone)
    assert again == digest
    assert parsed > 10
    assert known.is_file()


def test_an_edited_file_alone_is_parsed_whatever_its_time(clone: Path, known: Path) -> None:
    before, _ = ask(clone)
    file = clone / "capsbench" / EDITED
    text, times = file.read_text(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_text(text + "\nEDITED = 1\n")
    os.utime(file, ns=times)
    after, parsed = ask(clone)
    assert parsed == 1
    assert after != before
    file.write_text(text + "\n# said\n")
    assert ask(clone) == (before, 1)
    file.write_text(text)
    assert ask(clone) == (before, 1)  # one entry a file: it does not grow with edits
    assert ask(clone) == (before, 0)


def test_other_rules_of_reading_ask_for_all_again(clone: Path, known: Path) -> None:
    before, _ = ask(clone)
    rules = clone / "capsbench" / "provenance.py"
    text = rules.read_text()
    rules.write_text(text.replace("parts = [quoted(kind.__name__)]", 'parts = ["other", quoted(kind.__name__)]'))
    try:
        after, parsed = ask(clone)
    finally:
        rules.write_text(text)
    assert after != before
    assert parsed > 10


@pytest.mark.parametrize(
    "damage",
    [
        lambda said: "",
        lambda said: json.dumps(said)[:-40],
        lambda said: "[]",
        lambda said: json.dumps({**said, "files": []}),
        lambda said: json.dumps({**said, "files": {name: ["x"] for name in said["files"]}}),
        lambda said: json.dumps({**said, "files": {name: [of, None, []] for name, (of, *_) in said["files"].items()}}),
        lambda said: "\udcff",
    ],
)
def test_a_damaged_file_is_made_again(clone: Path, known: Path, damage) -> None:
    digest, _ = ask(clone)
    known.write_bytes(damage(json.loads(known.read_text())).encode(errors="surrogateescape"))
    again, parsed = ask(clone)
    assert (again, parsed > 10) == (digest, True)
    assert ask(clone) == (digest, 0)


def test_nothing_is_written_where_python_writes_no_bytecode(clone: Path, known: Path) -> None:
    digest, _ = ask(clone)
    known.unlink()
    for said in (ask(clone, "-B"), ask(clone, PYTHONDONTWRITEBYTECODE="1")):
        assert said[0] == digest
        assert said[1] > 10
    assert not known.exists()


def test_where_it_can_be_neither_read_nor_written_all_is_parsed(clone: Path, known: Path) -> None:
    digest, _ = ask(clone)
    known.unlink()
    known.mkdir()
    try:
        again, parsed = ask(clone)
    finally:
        known.rmdir()
    assert (again, parsed > 10) == (digest, True)
    assert list(known.parent.glob(".sources*")) == []
