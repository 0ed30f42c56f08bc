"""Figure and tables of claims, from results whose verdicts are known; bold only where it is certain."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import toy
from judging import answer, claim, errors, judged, measure, results_of
from matplotlib.text import Text
from scipy import stats
from tools import tool

from capsbench.plan.claims import load_claims
from capsbench.report.best import certainly_best
from capsbench.report.collect import collect
from capsbench.report.figures import NotDrawnError
from capsbench.report.figures import claims as figure
from capsbench.report.figures.style import house_style
from capsbench.report.formats import to_latex, to_markdown, to_terminal
from capsbench.report.results import Results
from capsbench.report.verdicts.tables import write_tables
from capsbench.report.wide import wide_table

CELLS = {"mnist": ["cnn", "capsnet-r3-recon", "capsnet-r3"]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Judged: a value reproduced, a direction reproduced, an equivalence undecided, a claim not run."""
    folder = results_of(tmp_path_factory.mktemp("claims") / "full", CELLS)
    answer(folder, "cnn", errors(0.04, stream=1))
    answer(folder, "capsnet-r3-recon", errors(0.02, stream=2))
    said = [
        claim("value"),
        claim("direction", family="two", sentence="A & B are 5 % _better_ than {C}."),
        claim("no_difference", family="two", delta=2.0),
        claim("value", id="missing", cell="mnist/capsnet-r1"),
    ]
    found, results = judged(folder, *said)
    results.judged = found
    assert [j.verdict for j in found.judgements] == ["reproduced", "reproduced", "undecided", "not run"]
    return results


def test_a_family_s_long_name_is_not_cut_at_the_edge(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    long = " ".join(load_claims().families[name] for name in ("two-digit-again", "two-digit-models"))
    assert results.judged is not None
    monkeypatch.setitem(results.judged.claims.families, "two", long)
    with house_style():
        drawn = figure.draw(results).figure
        drawn.draw_without_rendering()
        (title,) = (words for words in drawn.findobj(Text) if words.get_text().split() == long.split())
        assert title.get_window_extent().x1 <= drawn.bbox.x1


def test_the_figure_has_a_panel_a_family_and_a_line_a_judged_claim(results: Results) -> None:
    with house_style():
        drawing = figure.draw(results)
        panels = drawing.figure.axes
        assert [axes.get_title(loc="left") for axes in panels] == ["A family", "A family"]
        assert [len(axes.get_yticklabels()) for axes in panels] == [1, 2]
        shown = [text.get_text() for axes in panels for text in axes.texts]
        assert [text.partition("\n")[0] for text in shown] == ["reproduced, n=5", "reproduced, n=5", "undecided, n=5"]
        assert [text.partition("\n")[2] for text in shown] == _intervals(results)
        assert [patch.get_width() for patch in panels[0].patches] == [pytest.approx(1.0)]  # 2 +- 0.5
        legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend == [
        "reproduced",
        "undecided",
        "claimed",
        "tolerance",
        "claimed: less than",
        "no difference, or the claimed bound",
    ]
    assert "2 reproduced, 0 not reproduced, 1 undecided and 1 not run" in drawing.caption
    with pytest.raises(NotDrawnError, match="no claim could be judged"):
        figure.draw(collect(results.folder))


def _intervals(results: Results) -> list[str]:
    """As they are printed: of the value its 95 % interval, of the others the adjusted one."""
    assert results.judged is not None
    found = [j for j in results.judged.judgements if j.estimate is not None]
    shown = []
    for judgement in found:
        assert judgement.estimate is not None  # chosen so
        low, high = judgement.estimate.interval()
        decimals = 2 if high - low < 1 else 1
        low, high = judgement.adjusted or (low, high)
        shown.append(f"{low:.{decimals}f} to {high:.{decimals}f}")
    return shown


def test_bars_band_and_triangle_lie_where_the_verdicts_were_found(results: Results) -> None:
    assert results.judged is not None
    with house_style():
        values, differences = figure.draw(results).figure.axes
    (band,) = values.patches
    assert (band.get_x(), band.get_width()) == pytest.approx((1.5, 1.0))  # 2 ± 0.5
    drawn = [
        list(line.get_xdata()) for axes in (values, differences) for line in axes.lines if line.get_linewidth() == 2
    ]
    found = [j for j in results.judged.judgements if j.estimate is not None]
    ends = [list(j.adjusted or j.estimate.interval()) for j in found if j.estimate is not None]
    assert [line for line in drawn if len(line) == 2] == [pytest.approx(of) for of in ends]
    assert [line.get_marker() for line in differences.lines if line.get_marker() in ("<", ">")] == ["<"]  # errs less


def test_an_equality_that_does_not_hold_is_drawn_with_the_interval_that_says_so(tmp_path: Path) -> None:
    folder = results_of(tmp_path / "apart", CELLS)
    for variant, errors_of in APART.items():
        for seed, error in enumerate(errors_of):
            measure(folder, "mnist", variant.replace("_", "-"), seed, "test", error=error)
    others = [claim("value", id=f"other-{k}", cell="mnist/capsnet-r1") for k in range(3)]
    equal = [claim("no_difference", id=f"equal-{k}", delta=0.5, test="welch") for k in range(4)]
    results = judged(folder, *equal, *others)[1]
    results.judged = judged(folder, *equal, *others)[0]
    (first, *_) = results.judged.judgements
    assert first.verdict == "not reproduced"
    assert first.estimate is not None
    with house_style():
        shown = [text.get_text() for text in figure.draw(results).figure.axes[0].texts]
    low, high = first.estimate.interval()
    assert shown[0] == f"not reproduced, n=5\n{low:.2f} to {high:.2f}"


def test_the_tables_say_every_claim(results: Results, tmp_path: Path) -> None:
    assert results.judged is not None
    csv, markdown, latex = write_tables(tmp_path, results.judged, results)
    frame = pd.read_csv(csv)
    assert list(frame["id"]) == [judgement.claim.id for judgement in results.judged.judgements]
    assert list(frame["verdict"]) == ["reproduced", "reproduced", "undecided", "not run"]
    assert frame["claimed"][1] == "mnist/capsnet-r3-recon"
    assert frame["baseline"][1] == "mnist/cnn"
    text = markdown.read_text()
    assert text.startswith("4 claims: 2 reproduced, 0 not reproduced, 1 undecided and 1 not run.")
    assert "Holm over the 2 claims of the family, whether run or not." in text
    assert latex.read_text().count(r"\begin{tabular}") == 2


def test_the_latex_of_claims_compiles(results: Results, tmp_path: Path) -> None:
    assert results.judged is not None
    write_tables(tmp_path, results.judged, results)
    command = [tool("pdflatex"), "-interaction=nonstopmode", "-halt-on-error", "claims.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


# ---- bold ------------------------------------------------------------------------------------------------------------


APART = {  # errors by seed: each variant is certainly better than the one before it
    "cnn": [3.0, 3.1, 2.9, 3.0, 3.0],
    "capsnet_r3": [2.0, 2.1, 1.9, 2.0, 2.0],
    "capsnet_r3_recon": [1.0, 1.1, 0.9, 1.0, 1.0],
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three variants of five seeds; the errors are to be written."""
    return results_of(tmp_path / "table", CELLS)


def write(folder: Path, **errors_of: list[float]) -> Results:
    for variant, values in errors_of.items():
        for seed, value in enumerate(values):
            measure(folder, "mnist", variant.replace("_", "-"), seed, "test", error=value)
    return collect(folder)


def test_the_best_is_bold_where_it_is_certain(table: Path) -> None:
    found = write(table, **APART)
    assert {cell.variant for cell in certainly_best(found, "mnist")} == {"capsnet-r3-recon"}
    wide = wide_table(found, "mnist")
    assert "**1.00 ± 0.09**" in to_markdown(wide)
    assert to_markdown(wide).count("**") == 4  # and the title
    assert r"\textbf{1.00 $\pm$ 0.09}" in to_latex(wide)
    assert any("Bold: the best of its column" in sentence for sentence in wide.caption)
    plain = to_terminal(wide)
    assert "1.00 ± 0.09 *" in plain
    assert "With a star: the best of its column" in " ".join(plain.split())


def test_a_positive_control_is_never_the_best(table: Path) -> None:
    write(table, **APART)
    for seed in range(5):
        path = toy.run_folder(table, "mnist", "capsnet-r3-recon", seed) / "manifest.json"
        config = json.loads(path.read_text())["config"]
        toy.change_json(path, config=config | {"variant": config["variant"] | {"train_on": "pairs"}})
    found = collect(table)
    assert {cell.variant for cell in certainly_best(found, "mnist")} == {"capsnet-r3"}
    wide = wide_table(found, "mnist")
    assert "Rows trained on pairs are left out of that comparison." in wide.caption


def test_nothing_is_bold_where_any_other_could_be_as_good(table: Path) -> None:
    near = [1.05, 1.2, 0.85, 1.1, 1.0]
    found = write(table, cnn=[3.0, 3.1, 2.9, 3.0, 3.0], capsnet_r3=near, capsnet_r3_recon=[1.0, 1.1, 0.9, 1.0, 1.0])
    assert certainly_best(found, "mnist") == set()
    for seed in (1, 2, 3, 4):
        toy.fail(table, "mnist", "capsnet-r3", seed)  # one seed: nobody knows how good it is
    assert certainly_best(write(table, capsnet_r3=[9.0]), "mnist") == set()
    toy.fail(table, "mnist", "capsnet-r3", 0)  # it will never have a value
    assert {cell.variant for cell in certainly_best(collect(table), "mnist")} == {"capsnet-r3-recon"}


def test_each_of_two_others_has_to_be_told_apart_with_both_in_mind(table: Path) -> None:
    """Alone each is: Welch's p is 0.039. With Holm over both it is 0.079."""
    best = [1.0, 1.1, 0.9, 1.0, 1.0]
    other = [value + 0.11 for value in best]
    assert stats.ttest_ind(best, other, equal_var=False).pvalue == pytest.approx(0.039, abs=0.001)
    assert certainly_best(write(table, cnn=other, capsnet_r3=other, capsnet_r3_recon=best), "mnist") == set()


def test_nothing_is_bold_while_a_row_of_the_plan_has_no_run(table: Path) -> None:
    bad, good = [3.0, 3.1, 2.9, 3.0, 3.0], [1.0, 1.1, 0.9, 1.0, 1.0]
    write(table, cnn=bad, capsnet_r3=bad, capsnet_r3_recon=good)
    for seed in (1, 2, 3, 4):
        shutil.rmtree(toy.run_folder(table, "mnist", "capsnet-r3", seed))
    toy.fail(table, "mnist", "capsnet-r3", 0)  # the others may still come
    assert certainly_best(collect(table), "mnist") == set()
    shutil.rmtree(toy.run_folder(table, "mnist", "capsnet-r3", 0))
    assert certainly_best(collect(table), "mnist") == set()


def test_nothing_is_bold_by_what_is_left_where_runs_failed(table: Path) -> None:
    """Those that are left were the luckier ones: no claim is decided by them either."""
    write(table, **APART)
    toy.fail(table, "mnist", "capsnet-r3-recon", 3)
    assert certainly_best(collect(table), "mnist") == set()


def test_a_model_without_a_decoder_does_not_keep_those_that_draw_from_being_the_best(tmp_path: Path) -> None:
    cells = ["multimnist-cnn", "capsnet-r1-recon", "capsnet-r3-recon"]
    folder = results_of(tmp_path / "drawn", {"multimnist": cells})
    for seed, noise in enumerate((-0.01, 0.0, 0.01, 0.0, 0.0)):
        measure(folder, "multimnist", "multimnist-cnn", seed, "test", error=9 + noise)
        for variant, error in (("capsnet-r1-recon", 7), ("capsnet-r3-recon", 5)):
            measure(folder, "multimnist", variant, seed, "test", error=error + noise, ssim_true=1 / error + noise / 10)
    best = {("error", "capsnet-r3-recon"), ("ssim_true", "capsnet-r3-recon")}
    assert {(cell.metric, cell.variant) for cell in certainly_best(collect(folder), "multimnist")} == best
    shutil.rmtree(folder / "runs" / "multimnist" / "multimnist-cnn")  # nobody knows what it will have
    assert certainly_best(collect(folder), "multimnist") == set()
