"""What an edit makes again: model code retrains its models, plotting redraws, a plan reruns what it touches."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import Place, copy_source

DRAW = "Draw tables, figures and the report"
CNN = {"Train mnist/cnn", "Evaluate mnist/cnn"}
CAPSNET = {"Train mnist/capsnet-r3-recon", "Evaluate mnist/capsnet-r3-recon"}
DIVERGING = {"Train mnist/diverging", "Evaluate mnist/diverging"}
EVALUATE = {"Evaluate mnist/cnn", "Evaluate mnist/capsnet-r3-recon", "Evaluate mnist/diverging", DRAW}


def append(clone: Path, file: str, text: str) -> None:
    with (clone / "capsbench" / file).open("a") as stream:
        stream.write(text)


@pytest.fixture
def edited(finished, tmp_path) -> Place:
    """The finished run, with a copy of the source to edit."""
    place = finished.copy(tmp_path / "again", copy_source(tmp_path / "clone", finished.place.clone))
    where = place.ask("-c", "import capsbench; print(capsbench.__file__)")
    assert where.out.strip() == str(place.clone / "capsbench" / "__init__.py")
    return place


def test_code_of_a_model_retrains_that_model(edited) -> None:
    append(edited.clone, "models/capsnet.py", "\n# a comment trains nothing\n")
    assert edited.would_run() == set()
    append(edited.clone, "models/capsnet.py", "\nADDED = 1\n")
    jobs = edited.would_run()
    assert "Train mnist/capsnet-r3-recon" in jobs
    assert "Train mnist/cnn" not in jobs


def test_code_of_the_report_only_draws(edited) -> None:
    append(edited.clone, "report/figures/style.py", "\nADDED = 1\n")
    assert edited.would_run() == {DRAW}


def test_a_template_of_the_report_only_draws(edited) -> None:
    append(edited.clone, "report/templates/report.css", "\n.added { color: red }\n")
    assert edited.would_run() == {DRAW}


@pytest.mark.slow
def test_a_published_figure_only_draws(edited) -> None:
    file = edited.clone / "config" / "published.yaml"
    file.write_text(file.read_text().replace("value: 0.39", "value: 0.38", 1))
    assert edited.would_run() == {DRAW}


def test_code_of_an_evaluation_trains_nothing(edited) -> None:
    append(edited.clone, "evaluation/mnist.py", "\nADDED = 1\n")
    assert edited.would_run() == EVALUATE


def test_a_new_routing_does_nothing_to_what_is_there(edited) -> None:
    routing = edited.clone / "capsbench" / "routing"
    (routing / "brand_new.py").write_text((routing / "uniform.py").read_text())
    registry = routing / "registry.py"
    lines = registry.read_text().splitlines(keepends=True)
    uniform = next(number for number, line in enumerate(lines) if '"uniform"' in line)
    lines.insert(uniform + 1, lines[uniform].replace("uniform", "brand-new", 1).replace("uniform", "brand_new"))
    registry.write_text("".join(lines))
    said = edited.ask("-c", "from capsbench.routing import registry; print(vars(registry))")
    assert "brand_new" in said.out, said.text
    assert edited.would_run() == set()


SLOW = pytest.mark.slow  # a second or two each, but there are many


@pytest.mark.parametrize(
    ("values", "jobs"),
    [
        ({"test_images": 30}, EVALUATE),
        (
            {"variants": "[cnn, capsnet-r3-recon, diverging, capsnet-r1]"},
            {"Train mnist/capsnet-r1", "Evaluate mnist/capsnet-r1", DRAW},
        ),
        ({"steps": 5}, {*CNN, *CAPSNET, *DIVERGING, DRAW}),
        pytest.param({"variants": "[capsnet-r3-recon]"}, {DRAW}, marks=SLOW),
        pytest.param(
            {"variants": "[cnn, capsnet-r3-recon, diverging]\n    widths: {cnn: 0.03125}"}, {*CNN, DRAW}, marks=SLOW
        ),
        pytest.param({"seeds": [0, 1]}, {*CNN, *CAPSNET, *DIVERGING, DRAW}, marks=SLOW),
    ],
)
def test_an_edited_plan_runs_what_it_touches(done, values: dict[str, object], jobs: set[str]) -> None:
    done.plan(**values)
    assert done.would_run() == jobs


@SLOW
def test_words_for_tables_only_draw(done) -> None:
    plan = done.plan()
    plan.write_text(plan.read_text().replace("A few steps of three cells", "Three cells of a few steps"))
    assert done.would_run() == {DRAW}


@pytest.mark.slow
def test_one_more_seed_leaves_the_others_alone(done) -> None:
    before = done.manifests()
    done.plan(seeds=[0, 1])
    said = done.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    after = done.manifests()
    assert {key: after[key] for key in before} == before
    assert after.keys() - before.keys() == {f"mnist/{name}/seed-1" for name in ("cnn", "capsnet-r3-recon", "diverging")}
    table = (done.results / "tables" / "mnist.csv").read_text().splitlines()
    errors = [line.split(",") for line in table if ",error," in line]
    assert [line[6:8] for line in errors] == [["2", "0"], ["2", "0"], ["0", "2"]]


@pytest.mark.slow
def test_changed_code_really_trains_again(edited) -> None:
    before = edited.manifests()
    append(edited.clone, "models/capsnet.py", "\nADDED = 1\n")
    said = edited.snakemake("--configfile", "tiny.yaml")
    assert said.code == 0, said.text
    after = edited.manifests()
    assert after["mnist/cnn/seed-0"] == before["mnist/cnn/seed-0"]
    assert after["mnist/capsnet-r3-recon/seed-0"] != before["mnist/capsnet-r3-recon/seed-0"]
    assert edited.would_run() == set()
