"""What a plan of the user's own is made of lies with its results: no commit of the suite has it."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capsbench.cli.app import app
from capsbench.files import write_text
from capsbench.pipeline import begin_results, open_house, write_plan
from capsbench.plan import config_folder

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_routing"
DATA = {"name": "uci-digits", "badge": "UCI digits, not MNIST", "digest": "0" * 64}


@pytest.fixture
def plan(tmp_path: Path, results: Path, no_data: dict[str, str]) -> Path:
    """The example and a CNN, in a user's folder; its second routing lies in a package, and imports a module there."""
    folder = tmp_path / "mine"
    (folder / "ours").mkdir(parents=True)
    routing = (EXAMPLE / "my_routing.py").read_text()
    (folder / "my_routing.py").write_text(routing)
    (folder / "ours" / "__init__.py").write_text("")
    (folder / "ours" / "sharp.py").write_text(f"import helping\n{routing}")
    (folder / "helping.py").write_text("SHARP = 16.0\n")
    (folder / "unasked.py").write_text("WORDS = 'nobody imports it'\n")
    text = (EXAMPLE / "custom-routing.yaml").read_text()
    cosine, variants = "    routing: my_routing:cosine\n", "variants: [capsnet-r3-recon,"
    assert cosine in text
    assert variants in text
    text = text.replace(variants, "variants: [cnn, capsnet-r3-recon,").replace(
        cosine, "    routing: ours.sharp:cosine\n"
    )
    (folder / "custom-routing.yaml").write_text(text)
    return folder / "custom-routing.yaml"


def copies(folder: Path) -> dict[str, bytes]:
    place = folder / "plan"
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_plan_and_all_that_its_routings_are_made_of_are_copied(plan: Path) -> None:
    house, _ = open_house(plan)
    write_plan(house, DATA)
    whole = {"custom-routing.yaml", "my_routing.py", "ours/__init__.py", "ours/sharp.py", "helping.py"}
    assert copies(house.folder) == {name: (plan.parent / name).read_bytes() for name in whole}
    assert json.loads((house.folder / "plan.json").read_text())["name"] == house.name


def test_a_copy_runs_as_the_plan_does(plan: Path) -> None:
    house, _ = open_house(plan)
    write_plan(house, DATA)
    shutil.rmtree(plan.parent)  # on another machine, with the results alone
    again, _ = open_house(house.folder / "plan" / plan.name)
    assert again.folder == house.folder
    assert again.digest == house.digest
    assert [cell.config_digest(0) for cell in again.cells] == [cell.config_digest(0) for cell in house.cells]
    before = copies(house.folder)
    write_plan(again, DATA)  # which lies there itself
    assert copies(house.folder) == before


def test_copies_follow_the_plan_and_the_same_are_not_written_again(plan: Path) -> None:
    house, _ = open_house(plan)
    write_plan(house, DATA)
    place = house.folder / "plan"
    os.utime(place / "my_routing.py", (1, 1))
    (plan.parent / "ours" / "sharp.py").write_text((EXAMPLE / "my_routing.py").read_text())  # imports no other now
    write_plan(open_house(plan)[0], DATA)
    assert {*copies(house.folder)} == {"custom-routing.yaml", "my_routing.py", "ours/__init__.py", "ours/sharp.py"}
    assert (place / "ours" / "sharp.py").read_bytes() == (EXAMPLE / "my_routing.py").read_bytes()
    assert (place / "my_routing.py").stat().st_mtime == 1
    plan.write_text(plan.read_text().replace("ours.sharp:cosine", "my_routing:cosine"))
    write_plan(open_house(plan)[0], DATA)
    assert {*copies(house.folder)} == {"custom-routing.yaml", "my_routing.py"}
    assert not (place / "ours").exists()


def test_what_trains_is_what_is_kept_and_plan_json_is_of_the_plan_as_it_is_now(plan: Path) -> None:
    """Of a folder that is begun too: the code that trained a run is nowhere else once it is edited again."""
    house, _ = open_house(plan)
    begin_results(house, DATA)
    first = (house.folder / "plan.json").read_bytes()
    for name in ("my_routing.py", "helping.py"):
        (plan.parent / name).write_text(f"{(plan.parent / name).read_text()}# edited\n")
    begin_results(open_house(plan)[0], DATA)
    for name in ("my_routing.py", "helping.py"):
        assert copies(house.folder)[name] == (plan.parent / name).read_bytes()
    assert (house.folder / "plan.json").read_bytes() == first
    plan.write_text(plan.read_text().replace("seeds: [0, 1", "seeds: [1"))
    edited, _ = open_house(plan)
    assert edited.digest != house.digest
    begin_results(edited, DATA)
    assert json.loads((house.folder / "plan.json").read_text())["digest"] == edited.digest
    assert copies(house.folder)[plan.name] == plan.read_bytes()


def test_what_somebody_keeps_there_stays(plan: Path, tmp_path: Path) -> None:
    house, _ = open_house(plan)
    (house.folder / "plan").mkdir(parents=True)
    (house.folder / "plan" / "notes.md").write_text("Why these rows.\n")
    write_plan(house, DATA)
    assert (house.folder / "plan" / "notes.md").read_text() == "Why these rows.\n"
    shutil.rmtree(house.folder / "plan")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "others.py").write_text("")
    (house.folder / "plan").symlink_to(elsewhere)
    write_plan(house, DATA)
    assert (elsewhere / "others.py").exists()


def test_plans_of_the_suite_are_those_of_the_commit(results: Path, no_data: dict[str, str]) -> None:
    house, _ = open_house(config_folder() / "quick.yaml")
    write_text(house.folder / "plan" / "quick.yaml", "of a user's plan that was called so, too")
    write_plan(house, DATA)
    assert (house.folder / "plan.json").is_file()
    assert not (house.folder / "plan").exists()


def test_a_plan_in_its_results_is_not_copied(plan: Path) -> None:
    house, _ = open_house(plan)
    house.folder.mkdir(parents=True)
    for path in plan.parent.iterdir():
        path.rename(house.folder / path.name)
    own, _ = open_house(house.folder / plan.name)
    assert own.folder == house.folder
    write_plan(own, DATA)
    assert not (own.folder / "plan").exists()


def test_the_report_and_the_crate_have_them(plan: Path) -> None:
    said = CliRunner().invoke(app, ["report", str(plan)])
    assert said.exit_code == 0, said.output
    house, _ = open_house(plan)
    page = (house.folder / "report.html").read_text()
    assert f"snakemake --configfile results/{house.name}/plan/custom-routing.yaml" in page
    assert "A copy of it, with the code from outside that it names, lies in" in page
    cache = house.folder / "plan" / "__pycache__"
    cache.mkdir()
    (cache / "my_routing.cpython-311.pyc").write_bytes(b"of a run of the copy")
    assert CliRunner().invoke(app, ["export", str(plan)]).exit_code == 0
    with zipfile.ZipFile(house.folder / "export" / f"{house.name}.crate.zip") as crate:
        assert crate.read("plan/ours/sharp.py") == (plan.parent / "ours" / "sharp.py").read_bytes()
        assert crate.read("plan/custom-routing.yaml") == plan.read_bytes()
        assert not [name for name in crate.namelist() if "__pycache__" in name]
