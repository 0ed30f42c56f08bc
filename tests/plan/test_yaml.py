"""Large files are read by libyaml: the same values, complaints in the same words, nothing so deep that it ends all."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml

from capsbench.errors import PlanError
from capsbench.plan import yaml_file
from capsbench.plan.load import config_folder
from capsbench.plan.yaml_file import DEEPEST, read_yaml

SHIPPED = sorted(config_folder().glob("*.yaml"))


def complaint(path: Path, large: bool) -> str:
    with pytest.raises(PlanError) as refused:
        read_yaml(path, large)
    return str(refused.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_both_loaders_read_the_same_from_what_is_shipped(path: Path) -> None:
    text = path.read_text()
    values = [yaml.load(text, Loader=loader) for loader in (yaml_file._Loader, yaml_file._FastLoader)]
    assert repr(values[0]) == repr(values[1])  # kinds and order too


def test_the_claims_are_read_by_the_fast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert yaml.__with_libyaml__
    monkeypatch.setattr(yaml_file, "_Loader", None)
    assert read_yaml(config_folder() / "claims.yaml", large=True)["claims"]


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a: [}\n",
        "a: 'b\n",
        "a:\tb: c\n",
        "- 1\n",
        "",
        "x: &a\n  - *a\n",
        "1: 2\n",
        "a: !!python/none\n",
        "a: !!bool ja\n",
        'a: !!int ""\n',
        'a: !!float ""\n',
        "a: !!timestamp x\n",
        "a: 0x" + "f" * 5_000 + "\n",
        "a: " + "9" * 5_000 + "\n",
        'a: "\\ud800"\n',
        "a: &x [1]\nb: &y [" + ", ".join(["*x"] * 400) + "]\nc: [" + ", ".join(["*y"] * 400) + "]\n",
    ],
)
def test_a_mistake_is_the_same_sentence_from_both(tmp_path: Path, text: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    assert complaint(path, large=True) == complaint(path, large=False)


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "a: " + "{b: " * 50_000,
        "- " * 30_000 + "1",
        "\n".join(" " * level + "a:" for level in range(3_000)),
        "? " * 30_000,
    ],
)
def test_what_is_too_deep_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    assert "not valid YAML" in complaint(path, large=True)


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 660 + "1" + "]" * 660 + "\n",
        "\n".join(" " * level + "a:" for level in range(DEEPEST - 10)),
        "\n".join(" " * level + "- b:" for level in range(0, DEEPEST - 10, 2)),
    ],
)
def test_what_libyaml_is_given_does_not_end_the_process(text: str) -> None:
    """As deep as it may be: an answer, or a complaint by Python's or libyaml's own limit."""
    assert max(map(len, text.splitlines())) + text.count("[") < DEEPEST
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        assert yaml_file._value_of(text, large=True)


def test_a_mistake_is_named_by_the_line_that_it_stands_in(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n")
    assert complaint(path, large=False).endswith("plan.yaml, line 3: not valid YAML: key 'a' appears twice.")
    path.write_text('a: 1\nb: "\\ud800"\n')  # which could not be written into plan.json
    assert complaint(path, large=False).endswith(
        "plan.yaml, line 2: not valid YAML: half of a character, which no file can hold."
    )
