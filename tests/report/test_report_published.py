"""config/published.yaml holds the paper's figures, and a wrong file is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsbench.errors import PlanError
from capsbench.plan import load_variants
from capsbench.plan.claims import load_claims
from capsbench.report.captions import table_caption
from capsbench.report.collect import collect
from capsbench.report.published import Published, PublishedValue, TableCell, read_published
from capsbench.report.tables import SPECS


def test_table_1_is_the_papers(published: Published) -> None:
    expected = {
        "cnn": (0.39, None),
        "capsnet-r1": (0.34, 0.032),
        "capsnet-r1-recon": (0.29, 0.011),
        "capsnet-r3": (0.35, 0.036),
        "capsnet-r3-recon": (0.25, 0.005),
    }
    assert {value.variant: (value.value, value.sd) for value in published.values if value.task == "mnist"} == expected
    pairs = {value.variant: value.value for value in published.values if value.task == "multimnist"}
    assert pairs == {"multimnist-cnn": 8.1, "capsnet-r1-recon": 7.5, "capsnet-r3-recon": 5.2}


def test_every_figure_names_a_variant_a_condition_and_a_metric_of_the_suite(published: Published) -> None:
    variants = load_variants()
    for value in published.values:
        spec = SPECS[value.task]
        assert value.variant in variants
        assert value.condition in spec.conditions
        assert value.metric in {metric.name for metric in spec.main}
        assert len(value.source) > 20
    assert set(published.notes) <= set(SPECS)


def test_others_figures_of_affnist_are_given_to_those_who_report_them(published: Published) -> None:
    """The notes name the same source for a value as its claim does."""
    newer, older = published.notes["affnist"].split("Gu and Tresp (CVPR 2020)")
    sources = {claim.expected: claim.source for claim in load_claims().claims if claim.family == "affnist-values"}
    for value in (79.12, 81.81, 93.21, 94.11):
        assert str(value) in (newer if sources[value] == "Gu, Tresp, Hu 2021" else older)
    assert "Gu, Tresp and Hu (CVPR 2021)" in newer


def test_a_cell_without_a_figure_has_none(published: Published) -> None:
    assert published.get(TableCell("affnist", "capsnet-r3-recon", "converged", "accuracy")) is None


ENTRY = "{task: mnist, variant: cnn, condition: test, metric: error, value: 0.39, sd: null, source: a}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"values: [{ENTRY}, {ENTRY}]\nnotes: {{}}", "mnist/cnn/test/error twice"),
        (f"values: [{ENTRY.replace('sd:', 'sdev:')}]\nnotes: {{}}", "unknown key 'sdev' in values.0"),
        (f"values: [{ENTRY.replace('0.39', 'low')}]\nnotes: {{}}", "values.0.value"),
        (
            f"values: [{ENTRY.replace('mnist', 'minst')}]\nnotes: {{}}",
            "values.0.task: no task 'minst'; did you mean 'mnist'?",
        ),
        (
            f"values: [{ENTRY.replace('test', 'tests')}]\nnotes: {{}}",
            "values.0.condition: no condition 'tests'; did you",
        ),
        (
            f"values: [{ENTRY.replace('error', 'eror')}]\nnotes: {{}}",
            "values.0.metric: no metric 'eror'; did you mean 'err",
        ),
        ("values: []\nnotes: {multi: a}", "notes: no task 'multi'; did you mean 'multimnist'?"),
        ("values: [\n", "line 2"),
        ("values: []", "key 'notes' is missing."),
        ("3", "holds int, not a mapping"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_published(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_figure_that_is_not_the_paper_s_names_its_source(folder: Path) -> None:
    results = collect(folder)
    assert "Not theirs" not in " ".join(table_caption(results, "mnist", with_paper=True))
    own = PublishedValue(
        task="mnist",
        variant="capsnet-r1",
        condition="test",
        metric="error",
        value=0.5,
        sd=None,
        source="Mine 2026, table 2.",
    )
    results.published = results.published.model_copy(update={"values": [*results.published.values[2:], own]})
    said = " ".join(table_caption(results, "mnist", with_paper=True))
    title = results.plan.title("capsnet-r1")
    assert f"standard deviation where given. Not theirs: {title} (Mine 2026, table 2)." in said
    assert "Not theirs" not in " ".join(table_caption(results, "affnist", with_paper=True))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="There is no file"):
        read_published(tmp_path / "published.yaml")
