"""A routing outside the package: where its name leads, which files are part of its runs' digest, in sentences."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from capsbench.errors import PlanError
from capsbench.plan import House
from capsbench.plan.custom import custom_files, forget_others
from capsbench.plan.done import run_digests
from capsbench.plan.load import load_plan
from capsbench.provenance import PACKAGE

PLAN = """
budget: reduced
seeds: [0]
training: {steps: 1}
tasks:
  mnist: {variants: [capsnet-r3, VARIANT]}
"""
OWN = "variants: {mine: {base: capsnet-r3, title: Mine, routing: 'my_file:my_routing'}}\n"
ROUTING = '''"""A routing."""
from capsbench.routing import Routed


def my_routing(votes):
    """Not much of one."""
    return 1  # a number
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.yaml").write_text(PLAN.replace("VARIANT", "'my_file:my_routing'"))
    (tmp_path / "my_file.py").write_text(ROUTING)
    return tmp_path


def digests(folder: Path) -> list[str]:
    house = House.load(folder / "plan.yaml")
    return [run_digests(house, cell, 0, "data")["run"] for cell in house.cells]


def test_the_file_is_part_of_the_digest_of_its_runs_and_of_no_other(folder: Path) -> None:
    paper, mine = digests(folder)
    (folder / "my_file.py").write_text(ROUTING.replace("a number", "one").replace("Not much of one.", "Little."))
    assert digests(folder) == [paper, mine]  # comments and docstrings decide nothing
    (folder / "my_file.py").write_text(ROUTING.replace("return 1", "return 2"))
    assert digests(folder)[0] == paper
    assert digests(folder)[1] != mine


def test_what_a_process_trains_after_an_edit_is_what_it_has_imported_before(folder: Path) -> None:
    house = House.load(folder / "plan.yaml")
    mine = house.cells[1]
    first = run_digests(house, mine, 0, "data")["training_source"]
    (folder / "my_file.py").write_text(ROUTING.replace("return 1", "return 2"))
    assert run_digests(house, mine, 1, "data")["training_source"] == first  # seed 1, in the same process
    other = House.load(folder / "plan.yaml")
    assert run_digests(other, mine, 1, "data")["training_source"] != first


def test_a_named_variant_and_a_bare_one_both_have_it(folder: Path) -> None:
    (folder / "plan.yaml").write_text(OWN + PLAN.replace("VARIANT", "mine"))
    before = digests(folder)[1]
    (folder / "my_file.py").write_text(ROUTING.replace("return 1", "return 2"))
    assert digests(folder)[1] != before


@pytest.mark.parametrize(
    ("files", "name", "expected"),
    [
        ({"a.py": "import b\ndef f(votes): ...", "b.py": "from c import x", "c.py": "x = 1"}, "a:f", ["a", "b", "c"]),
        ({"a.py": "import numpy, torch\ndef f(votes): ...", "b.py": ""}, "a:f", ["a"]),
        ({"p/__init__.py": "", "p/a.py": "def f(votes): ...", "p/b.py": ""}, "p.a:f", ["p", "p.a"]),
        (
            {"p/__init__.py": "", "p/a.py": "from . import b\ndef f(votes): ...", "p/b.py": ""},
            "p.a:f",
            ["p", "p.a", "p.b"],
        ),
        ({"p/__init__.py": "", "p/a.py": "from .b import x as f", "p/b.py": "x = 1"}, "p.a:f", ["p", "p.a", "p.b"]),
        ({"p/__init__.py": "", "p/f.py": "def f(votes): ..."}, "p:f", ["p", "p.f"]),  # a module for its function
        ({"p/a.py": "def f(votes): ..."}, "p.a:f", ["p.a"]),  # a package without __init__
        ({"p/__init__.py": "from p.a import f", "p/a.py": "def f(votes): ..."}, "p:f", ["p", "p.a"]),
    ],
)
def test_the_files_of_a_routing_are_its_own_and_those_beside_it_that_it_imports(
    files: dict[str, str], name: str, expected: list[str], tmp_path: Path
) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    found = custom_files(name, tmp_path)
    assert sorted(found) == expected
    assert all(path.is_relative_to(tmp_path) for path in found.values())


def test_a_routing_on_python_s_path_is_in_the_digest_too(folder: Path, tmp_path_factory, monkeypatch) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "my_file.py").rename(elsewhere / "my_file.py")
    monkeypatch.syspath_prepend(elsewhere)
    before = digests(folder)[1]
    assert custom_files("my_file:my_routing", folder) == {"my_file": elsewhere / "my_file.py"}
    (elsewhere / "my_file.py").write_text(ROUTING.replace("return 1", "return 2"))
    assert digests(folder)[1] != before


def test_the_file_beside_a_routing_on_python_s_path_is_in_the_digest_too(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "my_file.py").rename(elsewhere / "my_file.py")
    (elsewhere / "helper.py").write_text("K = 1")
    (elsewhere / "my_file.py").write_text(f"from helper import K\nimport numpy\n{ROUTING}")
    monkeypatch.syspath_prepend(elsewhere)
    before = digests(folder)[1]
    assert custom_files("my_file:my_routing", folder).keys() == {"my_file", "helper"}
    (elsewhere / "helper.py").write_text("K = 50")
    assert digests(folder)[1] != before


@pytest.mark.parametrize("where", ["site-packages", "stdlib"])
def test_what_is_installed_brings_no_other_installed_file(
    where: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / where
    installed.mkdir(parents=True)
    if where == "stdlib":
        monkeypatch.setattr(sysconfig, "get_path", lambda name: str(installed))
    (installed / "theirs.py").write_text("import other\ndef routing(votes): ...")
    (installed / "other.py").write_text("")
    monkeypatch.syspath_prepend(installed)
    assert custom_files("theirs:routing", folder).keys() == {"theirs"}


def test_the_suite_itself_is_none_of_the_files_where_a_plan_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "capsbench").symlink_to(PACKAGE)
    (tmp_path / "mine.py").write_text("from capsbench.routing import squash\ndef routing(votes): ...")
    assert custom_files("mine:routing", tmp_path).keys() == {"mine"}


def test_what_it_imports_of_the_package_is_in_the_digest(folder: Path, monkeypatch) -> None:
    from capsbench import provenance

    (folder / "my_file.py").write_text("from capsbench.routing.kmeans import kmeans as my_routing\n")
    before = digests(folder)
    real = provenance._looked_at
    changed = ("another source", ())
    monkeypatch.setattr(provenance, "_looked_at", lambda path: changed if path.name == "kmeans.py" else real(path))
    assert digests(folder)[0] == before[0]
    assert digests(folder)[1] != before[1]


def test_a_routing_of_the_suite_that_it_calls_by_name_is_in_the_digest_too(folder: Path, monkeypatch) -> None:
    from capsbench import provenance

    (folder / "my_file.py").write_text(
        "from capsbench.routing import route\ndef my_routing(votes): return route('self-attention', votes)\n"
    )
    before = digests(folder)
    real = provenance._looked_at
    changed = ("another source", ())
    monkeypatch.setattr(
        provenance, "_looked_at", lambda path: changed if path.name == "self_attention.py" else real(path)
    )
    assert digests(folder)[0] == before[0]
    assert digests(folder)[1] != before[1]


@pytest.mark.parametrize(
    ("file", "variant", "sentence"),
    [
        (None, "my_file:my_routing", "there is no my_file.py in {folder} and no my_file on Python's path."),
        (ROUTING, "my_fil:my_routing", "there is no my_fil.py in {folder} and no my_fil on Python's path."),
        (ROUTING, "my_file:my_routin", "my_file.py has no 'my_routin'; did you mean 'my_routing'?"),
        (ROUTING, "my_file.sub:my_routing", "there is no my_file/sub.py in {folder}"),
        ("def my_routing(votes:\n", "my_file:my_routing", "my_file.py, line 1: not Python: '(' was never closed."),
        ("import b\ndef my_routing(votes): ...\n", "my_file:my_routing", "b.py, line 2: not Python: "),
        ("\0", "my_file:my_routing", "null bytes."),
    ],
)
def test_a_wrong_name_is_a_sentence_before_anything_is_imported(
    folder: Path, file: str | None, variant: str, sentence: str
) -> None:
    (folder / "my_file.py").unlink()
    (folder / "b.py").write_text("x = 1\ny = = 2\n")
    if file is not None:
        (folder / "my_file.py").write_text(file)
    (folder / "plan.yaml").write_text(PLAN.replace("VARIANT", f"'{variant}'"))
    with pytest.raises(PlanError) as caught:
        House.load(folder / "plan.yaml")
    text = str(caught.value)
    assert sentence.format(folder=folder) in text
    assert f"variant {variant}" in text
    assert str(folder / "plan.yaml") in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "text", ["from b import *\n", "def __getattr__(name): ...\n", "if True:\n    my_routing = print\n"]
)
def test_a_name_that_only_an_import_can_tell_is_left_to_it(folder: Path, text: str) -> None:
    (folder / "b.py").write_text("def my_routing(votes): ...\n")
    (folder / "my_file.py").write_text(text)
    routings = [getattr(cell.spec, "routing", None) for cell in House.load(folder / "plan.yaml").cells]
    assert routings == ["dynamic", "my_file:my_routing"]


def test_a_bare_routing_is_the_paper_s_capsnet_with_another_routing(folder: Path) -> None:
    paper, mine = House.load(folder / "plan.yaml").cells[0].spec, House.load(folder / "plan.yaml").cells[1].spec
    assert mine.routing == "my_file:my_routing"
    assert mine.reconstruction == "paper"
    assert (mine.squash, mine.normaliser, mine.iterations) == (None, None, 3)
    same = paper.model_dump(exclude={"title", "source", "routing", "squash", "normaliser", "reconstruction"})
    assert {key: value for key, value in mine.model_dump().items() if key in same} == same


def test_a_routing_of_one_s_own_is_not_of_the_source_of_its_base(folder: Path) -> None:
    text = PLAN.replace("VARIANT", "mine") + OWN
    (folder / "plan.yaml").write_text(text)
    said = load_plan(folder / "plan.yaml")[1]["mine"]
    assert said.routing == "my_file:my_routing"
    assert said.source == ""


def test_files_of_another_plan_s_folder_are_imported_anew_and_no_others(folder: Path, monkeypatch) -> None:
    other = folder / "other"
    other.mkdir()
    for place in (folder, other):
        (place / "helper_of_a_plan.py").write_text("x = 1\n")
        (place / "json.py").write_text("x = 1\n")  # Python has its own, which stays
    (folder / "my_file.py").write_text("import helper_of_a_plan, json\n" + ROUTING)
    standard = sys.modules["json"]
    for place, kept in ((other, False), (folder, True)):
        loaded = ModuleType("helper_of_a_plan")
        loaded.__file__ = str(place / "helper_of_a_plan.py")
        monkeypatch.setitem(sys.modules, "helper_of_a_plan", loaded)
        forget_others("my_file:my_routing", folder)
        assert ("helper_of_a_plan" in sys.modules) == kept
    forget_others("dynamic", folder)
    forget_others("my_file:my_routing", None)
    assert sys.modules["json"] is standard
    assert sys.modules["helper_of_a_plan"] is loaded


def test_two_variants_in_one_folder_are_refused(folder: Path) -> None:
    text = PLAN.replace("VARIANT", "'my_file:my_routing', my_file.my_routing")
    text += OWN.replace("mine:", "my_file.my_routing:")
    assert "variants: {my_file.my_routing: {base" in text
    (folder / "plan.yaml").write_text(text)
    with pytest.raises(PlanError, match=r"my_file:my_routing and my_file.my_routing would share the folder"):
        House.load(folder / "plan.yaml")


def test_what_is_imported_is_the_file_and_not_the_bytecode_of_one_as_long_and_as_old(tmp_path: Path) -> None:
    """As an archive with fixed times unpacks it: its digest is the new file's, and Python would run the old one."""
    path, program = tmp_path / "of_one_second.py", "import of_one_second; print(of_one_second.LEARNS)"
    said = []
    for value, name in ((1, None), (2, None), (2, "of_one_second:Mine")):
        path.write_text(f"LEARNS = {value}\nclass Mine: pass\n")
        os.utime(path, (1e9, 1e9))
        if name is not None:
            forget_others(name, tmp_path)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-c", program]
        said.append(subprocess.check_output(command, cwd=tmp_path, env=environment, text=True).strip())
    assert said == ["1", "1", "2"]  # the second is Python's way, which this is about
