"""results/paper follows from the files of its runs, and what findings.md and others say of it from them."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pages
import pandas as pd
import pytest
from pages import EVERY_FIGURE, ON_TWO_DIGITS, ROUTING, TWO_DIGITS, words_of

from capsbench.plan import House, config_folder
from capsbench.plan.claims import load_claims
from capsbench.report.collect import collect
from capsbench.report.results import Results
from capsbench.report.tables import csv_frame, long_table
from capsbench.report.verdicts import Judged, judge
from capsbench.report.verdicts.tables import csv_frame as claims_frame

REPOSITORY = Path(__file__).resolve().parents[2]
PAPER = REPOSITORY / "results" / "paper"
FINDINGS = words_of(pages.FINDINGS)
REPRODUCTION = words_of("docs/reproduction.md")
# Prose, and what only drawing tells: a word may be mended before the next report. Numbers and verdicts may not move.
PROSE = {"sentence", "source", "title", "why", "reductions", "figures", "ours", "claimed", "families"}


@pytest.fixture(scope="module")
def results() -> Results:
    return collect(PAPER)


@pytest.fixture(scope="module")
def judged(results: Results) -> Judged:
    return judge(results, load_claims())


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return dict(json.loads((PAPER / "claims.json").read_text()))


def unlike(ours: Any, theirs: Any, where: str) -> list[str]:
    """Where two values of claims.json differ by more than rounding, prose aside."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted((ours.keys() | theirs.keys()) - PROSE)
        return [found for key in keys for found in unlike(ours.get(key), theirs.get(key), f"{where}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [found for n, pair in pairs for found in unlike(*pair, f"{where}.{n}")]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (ours, theirs))
    same = math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12) if numbers else ours == theirs
    return [] if same else [f"{where}: {theirs!r} is stored, {ours!r} follows from the runs"]


def test_they_take_less_than_40_mb() -> None:
    command = ["git", "ls-files", "-z", PAPER]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = listed.stdout.strip("\0").split("\0")
    assert len(files) > 500
    assert sum((REPOSITORY / file).stat().st_size for file in files) < 40e6


def test_an_adjusted_interval_in_prose_is_one_of_today_s_verdicts(stored) -> None:
    """A family's other claims move when one more of it has its number."""
    words = " ".join([FINDINGS, *map(words_of, ON_TWO_DIGITS)])
    said = set(re.findall(r"Holm-adjusted (-?[\d.]+) to (-?[\d.]+)", words))
    again = json.loads((REPOSITORY / "results" / "two-digit-again" / "claims.json").read_text())
    judged = [*stored["claims"], *again["claims"]]
    known = {tuple(f"{claim[end] or 0:.1f}" for end in ("adjusted_low", "adjusted_high")) for claim in judged}
    replaced = json.loads((REPOSITORY / "results" / "two-digit-replaced" / "claims.json").read_text())
    known |= {  # so close to 0 that one digit would hide on which side
        tuple(f"{claim[end] or 0:.2f}" for end in ("adjusted_low", "adjusted_high")) for claim in replaced["claims"]
    }
    assert said
    assert said <= known


def test_the_verdicts_of_results_paper_follow_from_its_runs(results, judged, stored) -> None:
    ours, theirs = (
        {claim["id"]: claim for claim in said["claims"]}
        for said in (json.loads(json.dumps(judged.as_json(results, set()))), stored)
    )
    assert ours.keys() == theirs.keys()
    assert unlike(ours, theirs, "claims") == []
    assert judged.counts() == stored["counts"]


@pytest.mark.parametrize("task", ["mnist", "affnist", "multimnist", "two_digit"])
def test_the_tables_of_results_paper_follow_from_its_runs(results, task: str) -> None:
    assert task in results.plan.tasks
    same_table(csv_frame(long_table(results, task)), f"{task}.csv")


def test_the_table_of_claims_follows_from_its_runs(results, judged) -> None:
    same_table(claims_frame(judged, results), "claims.csv")


def same_table(ours: pd.DataFrame, name: str) -> None:
    theirs = pd.read_csv(PAPER / "tables" / name)
    assert list(ours.columns) == list(theirs.columns)
    assert len(ours) == len(theirs)
    for column in set(theirs.columns) - PROSE:
        one, other = ours[column], theirs[column]
        if pd.api.types.is_numeric_dtype(other):
            assert pd.to_numeric(one).tolist() == pytest.approx(other.tolist(), rel=1e-9, nan_ok=True), column
        else:
            assert one.fillna("").tolist() == other.fillna("").tolist(), column


def said(pattern: str, text: str = FINDINGS) -> tuple[str, ...]:
    """What a page says instead of the groups of `pattern`. A sentence gone or said twice is a failure."""
    found = list(re.finditer(pattern, text))
    assert len(found) == 1, f"it says {len(found)} times what this test reads with {pattern!r}; mend either."
    return found[0].groups()


def numbers(pattern: str, text: str = FINDINGS) -> tuple[int, ...]:
    return tuple(int(word) for word in said(pattern, text))


def test_the_verdicts_are_counted_as_they_are(stored) -> None:
    """docs/findings.md has the four counts, docs/reproduction.md why so many claims are not run."""
    counts, claims = stored["counts"], stored["claims"]
    assert numbers(
        r"of \[(\d+) claims\][^ ]* (\d+) are reproduced \(of Sabour et al\. only numbers of parameters; [^)]*\), "
        r"(\d+) \*\*not reproduced\*\* \(the 0\.25 %, [^)]*\), (\d+) undecided, and (\d+) not run:"
    ) == (len(claims), *(counts[verdict] for verdict in ("reproduced", "not reproduced", "undecided", "not run")))
    total, undecided, idle, *parts = numbers(
        r"Of these (\d+) claims (\d+) are undecided by `config/paper.yaml`, and (\d+) not run: (\d+) cannot be tested "
        r"here, (\d+) belong to other plans \(of (\d+) the models are there\), (\d+) wait",
        REPRODUCTION,
    )
    assert (total, undecided, idle) == (len(claims), counts["undecided"], counts["not run"])
    failed = {claim["id"] for claim in claims if claim["verdict"] == "not reproduced"}
    assert failed == {"mnist-r3-recon-value", "mnist-ports-value", "parameters-no-decoder-wrong"}, (
        "the page names others"
    )
    reproduced = [claim for claim in claims if claim["verdict"] == "reproduced"]
    theirs = {claim["id"] for claim in reproduced if claim["source"].startswith("Sabour et al.")}
    assert theirs == {"parameters-capsnet", "parameters-capsnet-no-decoder", "parameters-cnn"}
    why = Counter(claim["reason"] for claim in claims if claim["verdict"] == "not run")
    never = why["not tested here"]
    others = ("this plan has no such cell", "other data", "reduced protocol", "suggested by runs")
    elsewhere = sum(why[reason] for reason in others)
    assert parts == [never, elsewhere, why[others[0]], why.total() - never - elsewhere]
    assert numbers(r"has rules for (\d+) claims, and names (\d+) more that the suite cannot test", REPRODUCTION) == (
        len(claims) - never,
        never,
    )


def test_the_page_counts_the_runs_there_are(results) -> None:
    assert numbers(r"holds the (\d+) runs, made by `capsbench train config/paper\.yaml --task mnist") == (
        len(results.runs),
    )
    assert {run.manifest.status for run in results.runs.values()} == {"done"}
    assert numbers(r"(\d+) of the (\d+) runs of `config/paper\.yaml`") == (len(results.runs), runs("paper"))
    of_two_digits = sum(run.key.task == "two_digit" for run in results.runs.values())
    page = words_of(TWO_DIGITS)
    assert numbers(r"All (\d+) runs of it that `config/paper\.yaml` plans are finished", page) == (of_two_digits,)
    assert of_two_digits == runs("paper", "two_digit")
    of_mnist = [run for run in results.runs.values() if run.key.task == "mnist"]
    rows = Counter(run.key.variant for run in of_mnist)
    sentence = r"MNIST on a GPU \(the paper's CapsNet with (\w+) seeds a row, its CNN with (\w+) of (\w+)\)"
    assert said(sentence) == ("five", "two", "five")
    assert rows == {**dict.fromkeys(("capsnet-r3-recon", "capsnet-r1-recon", "capsnet-r3", "capsnet-r1"), 5), "cnn": 2}
    assert {run.manifest.machine["gpu"] for run in of_mnist} == {"NVIDIA H200"}


def test_the_list_of_plans_has_all_there_are_with_their_runs() -> None:
    page = (REPOSITORY / "docs" / "plans.md").read_text()
    rows = re.findall(r"^\| (`[^|]*\.yaml`) \|.*\| (\d+)(?: each)? \|$", page, re.M)
    told = {name: int(count) for names, count in rows for name in re.findall(r"([\w-]+)\.yaml", names)}
    plans = {path.stem for path in config_folder().glob("*.yaml")} - {"claims", "published", "variants"}
    assert told == {name: runs(name) for name in plans}


def runs(plan: str, task: str | None = None) -> int:
    cells = House.load(config_folder() / f"{plan}.yaml").cells
    return sum(len(cell.seeds) for cell in cells if task in (None, cell.task))


def test_the_table_of_two_digits_has_the_means_and_intervals_of_the_runs(results) -> None:
    rows = {
        results.plan.title(row.cell.variant): row.summary
        for row in long_table(results, "two_digit")
        if (row.cell.condition, row.cell.metric) == ("56x28", "top2_accuracy") and row.summary.n
    }
    (_, below) = FINDINGS.split("| trained on single digits, tested on two |")
    cells = re.findall(r"\| ([^|]+?) \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| (\d+) \|", below)
    told = {re.sub(r" \(Su's\)| \(`results/ladder`\)", "", name): words for name, *words in cells}
    (of_ladder,) = told.keys() - rows.keys()  # its own test is beside the ladder's page
    assert (of_ladder, len(told)) == ("CNN, sum pooling, lengths of vectors", len(cells))
    assert [name for name in told if name in rows] == [name for name in rows if name in told]
    for name in told.keys() - {of_ladder}:
        found = rows[name]
        assert told[name] == [*(f"{value:.1f}" for value in (found.mean, found.low, found.high)), str(found.n)], name
    frame = results.frame[results.frame.condition.eq("28x56") & results.frame.metric.eq("top2_accuracy")]
    beside = frame.groupby("variant").value.mean()
    plain = [f"two-digit-{pool}-{head}" for pool in ("average", "sum", "max") for head in ("mlp", "linear")]
    told = said(r"Su's capsules name both digits in ([\d.]+) and ([\d.]+) % of the pairs")
    assert told == tuple(f"{rows[results.plan.title(f'two-digit-{name}')].mean:.1f}" for name in ("replace", "kmeans"))
    capsnet = beside["capsnet-r3-recon"]
    assert said(r"side by side it does not explain CapsNet's ([\d.]+) %") == (f"{capsnet:.1f}",)
    told = said(r"the same single digits in (\d+) % at best\*\* \(side by side in up to ([\d.]+) %\)")
    assert told == (f"{max(rows[results.plan.title(name)].mean for name in plain):.0f}", f"{beside[plain].max():.1f}")


def test_what_the_page_says_of_uniform_couplings_follows_from_the_runs(results, stored) -> None:
    frame = results.frame[results.frame.condition.eq("28x56") & results.frame.metric.eq("top2_accuracy")]
    beside = frame.groupby("variant").value.mean()[["two-digit-kmeans", "two-digit-uniform-half"]]
    page = words_of(TWO_DIGITS)
    told = said(
        r"routing may matter:\*\* uniform couplings have ([\d.]+) \([\d., ]+\), k-means ([\d.]+) \([\d., ]+\)\.", page
    )
    assert [float(word) for word in told][::-1] == pytest.approx(beside.tolist(), abs=0.0501)
    (claim,) = (claim for claim in stored["claims"] if claim["id"] == "two-digit-routing-helps")
    told = said(
        r"routing helps is undecided \((-?[\d.]+) points, 95 % interval (-[\d.]+) to ([\d.]+), "
        r"Holm-adjusted (-[\d.]+) to ([\d.]+), five seeds each\)",
        page,
    )
    effect = [claim[end] for end in ("effect", "ci_low", "ci_high", "adjusted_low", "adjusted_high")]
    assert [float(word) for word in told] == pytest.approx(effect, abs=0.0501)
    assert claim["verdict"] == "undecided"


def test_the_page_on_two_digits_has_the_figure_of_every_seed(results) -> None:
    """Its table of stacked pairs: mean, and in brackets the seeds in their order, of four figures a row."""
    metrics = ["top2_accuracy", "both_above_half_accuracy", "final_exact_above_half_accuracy", "single_error"]
    frame = results.frame[(results.frame.task == "two_digit") & (results.frame.condition == "56x28")]
    seeds = frame.sort_values("seed").groupby(["variant", "metric"]).value.apply(list)
    page = (REPOSITORY / EVERY_FIGURE).read_text()
    table = page.split("## What was tried")[0]
    told = re.findall(r"^\| ([^|]+) \|" + r" ([\d.]+) \(([\d., ]+)\) \|" * 4 + "$", table, re.MULTILINE)
    assert len(told) == frame.variant.nunique()
    titles = {results.plan.title(variant): variant for variant in frame.variant.unique()}
    for name, *words in told:
        for metric, mean, each in zip(metrics, words[::2], words[1::2], strict=True):
            values = seeds[titles[name], metric]
            assert float(mean) == pytest.approx(sum(values) / len(values), abs=0.0501), (name, metric)
            assert [float(word) for word in each.split(", ")] == pytest.approx(values, abs=0.0501), (name, metric)


def test_the_page_on_two_digits_has_the_means_of_final_weights_and_side_by_side(results) -> None:
    columns = [("56x28", "final_top2_accuracy"), ("28x56", "top2_accuracy"), ("28x56", "final_top2_accuracy")]
    rows: dict[str, list[str]] = {}
    found = {
        (row.cell.condition, row.cell.metric, row.cell.variant): row.summary for row in long_table(results, "two_digit")
    }
    for variant in results.plan.tasks["two_digit"]:
        means = [found[condition, metric, variant] for condition, metric in columns]
        rows[results.plan.title(variant)] = [f"{s.mean:.1f} ({s.low:.1f} to {s.high:.1f})" for s in means if s.n > 1]
    page = (REPOSITORY / EVERY_FIGURE).read_text()
    told = re.findall(r"^\| ([^|]+)" + r" \| ([\d.]+ \([\d.]+ to [\d.]+\))" * 3 + r" \|$", page, re.MULTILINE)
    assert {name: words for name, *words in told} == rows


def test_what_squeezing_costs_follows_from_the_runs_of_the_control_and_of_capsnet(results) -> None:
    """Its table: means of whole pairs, and of squeezed ones with the seeds in their order."""
    page = (REPOSITORY / TWO_DIGITS).read_text().split("## CapsNet, and what squeezing costs")[1]
    told = re.findall(r"^\| ([^|]+?) \|" + r" ([\d.]*) ?\| ([\d.]+) \(([\d., ]+)\) \|" * 2 + "$", page, re.MULTILINE)
    squeezed = collect(REPOSITORY / "results" / "two-digit-squeezed")
    titles = {results.plan.title(variant): variant for variant in results.plan.tasks["two_digit"]}
    assert len(told) == 3

    def top2(of: Results, variant: str, condition: str) -> list[float]:
        runs = sorted(of.done("two_digit", variant), key=lambda run: run.key.seed)
        return [run.metrics[condition].metrics["top2_accuracy"].value or 0.0 for run in runs]

    for name, *words in told:
        always = name.startswith("CapsNet")  # it sees no others
        for condition, (whole, mean, each) in (("56x28", words[:3]), ("28x56", words[3:])):
            values = top2(results if always else squeezed, titles[name], condition)
            assert [float(word) for word in each.split(", ")] == pytest.approx(values, abs=0.00501), (name, condition)
            assert float(mean) == pytest.approx(sum(values) / len(values), abs=0.0501), (name, condition)
            if always:
                assert whole == ""
                continue
            values = top2(results, titles[name], condition)
            assert float(whole) == pytest.approx(sum(values) / len(values), abs=0.0501), (name, condition)


def test_what_accumulated_logits_have_follows_from_the_runs_of_the_ablation() -> None:
    """Its table, the verdict that two pages tell, and the differences that table `ablation` has."""
    page = (REPOSITORY / ROUTING).read_text().split("## Accumulated logits, with Su's squash")[1]
    page = page.split("\n## ")[0]
    found = collect(REPOSITORY / "results" / "ablation")
    told = re.findall(r"^\| ([^|]+?) \|" + r" ([\d.]+) \(([\d., ]+)\) \|" * 3 + "$", page, re.MULTILINE)
    titles = {found.plan.title(variant): variant for variant in found.plan.tasks["two_digit"]}
    columns = (("56x28", "top2_accuracy"), ("28x56", "top2_accuracy"), ("56x28", "single_error"))
    assert len(told) == 5
    for name, *words in told:
        runs = sorted(found.done("two_digit", titles[name]), key=lambda run: run.key.seed)
        for (condition, metric), mean, each in zip(columns, words[::2], words[1::2], strict=True):
            values = [run.metrics[condition].metrics[metric].value or 0.0 for run in runs]
            half = 0.501 * 10 ** -len(mean.partition(".")[2])
            assert [float(word) for word in each.split(", ")] == pytest.approx(values, abs=half), (name, metric)
            assert float(mean) == pytest.approx(sum(values) / len(values), abs=half), (name, metric)
    stored = json.loads((REPOSITORY / "results" / "ablation" / "claims.json").read_text())["claims"]
    for claims in (judge(found, load_claims()).as_json(found, set())["claims"], stored):
        (claim,) = (claim for claim in claims if claim["id"] == "two-digit-dynamic-value")
        assert claim["verdict"] == "not reproduced"
        shown = tuple(f"{claim[end]:.1f}" for end in ("effect", "ci_low", "ci_high"))
        assert "**Not reproduced: {} %, {} to {}.**".format(*shown) in page
        assert said(r"they do in ([\d.]+) \(\[([\d.]+) to ([\d.]+), three seeds\]", REPRODUCTION) == shown
    table = pd.read_csv(REPOSITORY / "results" / "ablation" / "tables" / "ablation.csv")
    table = table[(table.condition == "56x28") & (table.metric == "top2_accuracy")].set_index("variant")
    ends = ("difference", "ci_low", "ci_high")
    for variant, words in (
        ("replace", "Replaced logits have {} more ({} to {})"),
        ("kmeans", "k-means names both digits more often, one above the other, by {} points ({} to {})"),
        ("dynamic-half", "dynamic routing apart, one above the other ({} points, {} to {})"),
    ):
        told = words.format(*(f"{table.loc[f'two-digit-{variant}', end]:.1f}" for end in ends))
        assert told in " ".join(page.split())
