"""What comes from outside can be wrong, large or hostile: nothing of it is executed, and no name of it leads astray."""

from __future__ import annotations

import ast
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from places import Place

from capsbench.data.matlab import read_struct
from capsbench.errors import CapsbenchError, DataError, PlanError
from capsbench.evaluation.run import load_model
from capsbench.plan import House
from capsbench.report.readers import load_arrays
from capsbench.training.checkpoint import load_checkpoint, read_tensors

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "torch.load", "torch.jit.load",
    "np.lib.format.read_array", "pd.read_pickle", "scipy.io", "loadmat", "eval", "exec", "os.system", "os.popen",
    "extractall", "unpack_archive", "extract", "yaml.full_load", "yaml.unsafe_load", "yaml.Loader", "yaml.UnsafeLoader",
}  # fmt: skip


# ---- nothing pickled -----------------------------------------------------------------------------------------------


def uses(path: Path) -> list[str]:
    """What a source file imports or calls that could execute what it reads."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            words = ast.unparse(node.func)
            last = words.rpartition(".")[2]
            names = [words, *([last] if last not in ("eval", "exec") else [])]  # model.eval() is another thing
            for keyword in node.keywords:
                value = getattr(keyword.value, "value", keyword.value)
                if (keyword.arg == "allow_pickle" and value is not False) or (keyword.arg == "shell" and value):
                    names.append("eval")
            if words == "np.load" and not any(keyword.arg == "allow_pickle" for keyword in node.keywords):
                names.append("eval")
        found += [f"{path.name}: {name}" for name in names if name in FORBIDDEN]
    return found


def test_no_source_can_execute_what_it_reads() -> None:
    sources = [*sorted((ROOT / "capsbench").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]
    assert len(sources) > 100
    assert [found for path in sources for found in uses(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "torch.load(p)", "np.load(p, allow_pickle=True)", "np.load(p)", "scipy.io.loadmat(p)",
        "eval(p)", "subprocess.run(p, shell=True)", "archive.extractall(p)", "from joblib import load",
        "pd.read_pickle(p)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(line)
    assert uses(tmp_path / "a.py")


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_in_the_place_of_a_file_of_ours_is_refused_and_not_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.is_dir()  # the payload works
    mark.rmdir()

    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    torch.save({"model": Payload(mark)}, checkpoint / "last.safetensors")
    (checkpoint / "previous.safetensors").write_bytes(pickle.dumps(Payload(mark)))
    said: list[str] = []
    assert load_checkpoint(checkpoint, "x", said.append) is None
    assert len(said) == 2
    assert all("is not a whole safetensors file" in words for words in said)
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        read_tensors(checkpoint / "last.safetensors")

    objects = np.array([Payload(mark)], dtype=object)
    np.savez(tmp_path / "predictions.npz", labels=objects)
    with pytest.raises(ValueError, match=r"predictions\.npz .*allow_pickle"):
        load_arrays(tmp_path / "predictions.npz")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(ValueError, match=r"plain\.npz "):
        load_arrays(tmp_path / "plain.npz")
    with pytest.raises(DataError, match="no MATLAB Level 5 header"):
        read_struct(pickle.dumps(Payload(mark)).ljust(200, b"\0"), "affNISTdata", "my.mat")
    house = House.load(Place(tmp_path, ROOT).plan())
    with pytest.raises(DataError, match="not a whole safetensors file"):
        load_model(house, house.cells[0], checkpoint / "last.safetensors")
    assert not mark.exists()


def test_yaml_that_names_python_objects_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    (tmp_path / "plan.yaml").write_text(f"name: !!python/object/apply:os.mkdir ['{mark}']\n")
    with pytest.raises(PlanError, match="not valid YAML"):
        House.load(tmp_path / "plan.yaml")
    assert not mark.exists()


def test_what_a_file_says_cannot_steer_the_terminal() -> None:
    words = str(CapsbenchError("unknown key '\x1b[2J\x1b]0;title\x07\nnext' – π"))
    assert words == r"unknown key '\x1b[2J\x1b]0;title\x07\nnext' – π"


# ---- names ---------------------------------------------------------------------------------------------------------

HOSTILE = ["../x; rm", "..", ".", "a/b", "a\\b", "/etc", "$(touch pwned)", "`touch pwned`", "a b", "a\nb", "-rf", "",
           "{x}", "a;b", "a|b", "a&b", "a'b", 'a"b', "a*", "~", "a\0b", "é", "x" * 101, "a..b", "a.", ".a"]  # fmt: skip


NOT_A_NAME = "letters, digits, '_', '-', '+' and single dots only."


def named(folder: Path, where: str, name: str) -> Path:
    """A plan that holds together, but for the name if that is wrong."""
    (folder / "my_file.py").write_text("def route(votes): ...\n")
    path = Place(folder, ROOT).plan()
    value = yaml.safe_load(path.read_text())
    mnist = value["tasks"]["mnist"]["variants"]
    if where == "variant":
        value["variants"][name] = {"base": "cnn"}
        mnist.append(name)
    elif where == "plan":
        value["name"] = name
    elif where == "bare routing":
        mnist.append(f"{name}:route")
    else:
        routing = f"{name}:route" if where == "routing file" else f"my_file:{name}"
        value["variants"]["mine"] = {"base": "capsnet-r3", "routing": routing}
        mnist.append("mine")
    path.write_text(yaml.safe_dump(value, allow_unicode=True))
    return path


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    ("where", "rule"),
    [
        ("variant", "{name!r} is not a name for a variant: " + NOT_A_NAME),
        ("plan", "name: {name!r} is not a name: " + NOT_A_NAME),
        ("routing file", "there is no routing {name_route!r}; outside the package it is my_file:my_routing."),
        ("routing name", "there is no routing {my_name!r}; outside the package it is my_file:my_routing."),
        ("bare routing", "tasks.mnist.variants: no variant {name_route!r}"),
    ],
)
def test_a_name_that_could_be_a_path_or_a_shell_word_is_refused(
    tmp_path: Path, where: str, rule: str, name: str
) -> None:
    """By the rule on names itself: that no such file happens to be there would be no protection."""
    path = named(tmp_path, where, name)
    with pytest.raises(PlanError) as caught:
        House.load(path)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert rule.format(name=name, name_route=f"{name}:route", my_name=f"my_file:{name}") in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("where", "name"),
    [("variant", "a.b-c_d+e"), ("plan", "a.b"), ("routing file", "my_file"), ("routing name", "route"),
     ("bare routing", "my_file")],
)  # fmt: skip
def test_a_plan_with_a_decent_name_in_the_same_place_loads(tmp_path: Path, where: str, name: str) -> None:
    assert House.load(named(tmp_path, where, name)).cells


def test_snakemake_s_config_cannot_name_anything(tmp_path: Path, clone_of_source: Place) -> None:
    clone_of_source.plan()
    said = clone_of_source.snakemake("-n", "--configfile", "tiny.yaml", "--config", "name=../x; touch pwned")
    assert said.code != 0
    assert "--config name=... would change the plan unseen" in said.text
    assert "Traceback" not in said.text
    assert not list(clone_of_source.folder.rglob("pwned"))


@pytest.fixture
def clone_of_source(tmp_path: Path) -> Place:
    (tmp_path / "work").mkdir()
    return Place(tmp_path / "work", ROOT)


@pytest.mark.slow
def test_folders_with_spaces_quotes_and_shell_words_work(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "a" $(touch pwned) `touch pwned`; touch pwned & #'
    folder.mkdir()
    place = Place(folder, ROOT)
    place.plan(variants="[cnn]")
    named = os.environ.get("CAPSBENCH_DATA", "")
    if named:  # the plan's own data folder, of the same kind
        data = folder / "my 'data'; $(touch pwned)"
        data.symlink_to(named)
        text = (folder / "tiny.yaml").read_text()
        (folder / "tiny.yaml").write_text(text + f"data_folder: {str(data)!r}\n".replace("\\'", "''"))
    said = place.capsbench("run", folder / "tiny.yaml", **({} if named else {"CAPSBENCH_STAND_IN": "1"}))
    assert said.code == 0, said.text
    assert list(place.root.rglob("report.html"))
    assert not list(tmp_path.rglob("pwned"))
    assert "mnist/cnn seed 0: done" in said.text


# ---- the report ----------------------------------------------------------------------------------------------------


def test_a_plan_s_hostile_title_reaches_the_report_s_input_unchanged_and_is_no_name(tmp_path: Path) -> None:
    """The report escapes what it shows (tests/report/test_report_page.py); here: that a title never becomes a name."""
    title = "<script>alert(1)</script> ../x; rm"
    path = Place(tmp_path, ROOT).plan()
    path.write_text(path.read_text().replace("A rate at which no loss stays finite", title))
    house = House.load(path)
    described = house.describe({"name": "mnist", "badge": "MNIST", "digest": "0" * 64})
    assert described["titles"]["diverging"] == title
    assert all(title not in str(house.run_folder(cell, 0)) for cell in house.cells)
    assert "script" not in str(described["tasks"])
