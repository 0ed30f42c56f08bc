"""Markdown, LaTeX and terminal: nothing from a file is ever markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import toy
from tools import tool

from capsbench.report import Report, format_tables_for_terminal
from capsbench.report.formats import latex_text, markdown_text, to_latex, to_markdown, to_terminal
from capsbench.report.wide import Column, Entry, WideRow, WideTable

NASTY = r"<script>alert(1)</script> & 50% of $x_1$ #2 {a} ~b ^c \d | `e` *f* [g](h) -- ± × λ é 漢"


def table(text: str = NASTY) -> WideTable:
    columns = [Column("variant", "name"), Column(text, "value"), Column("n", "count"), Column("failed", "count")]
    rows = [WideRow("name", "test", [Entry(text, text), Entry("1.50 ± 0.10", 1.5), Entry("3", 3), Entry("0", 0)])]
    return WideTable("toy_task", columns, rows, [f"A title: {text}.", f"A caption: {text}."])


def test_latex_special_characters_are_escaped() -> None:
    assert latex_text("a & b % c _ d # $ { } ~ ^ \\") == (
        r"a \& b \% c \_ d \# \$ \{ \} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert latex_text("1.5 ± 0.1 é") == r"1.5 $\pm$ 0.1 é"
    assert latex_text("n²/(c + n²)") == r"n\textsuperscript{2}/(c + n\textsuperscript{2})"
    assert latex_text("漢") == "{[}U+6F22]"
    assert latex_text("a--b\n\nc") == "a-{}-b c"
    assert latex_text("a---b") == "a-{}-{}-b"  # else the last two are set as a dash


def test_latex_has_booktabs_and_as_many_cells_as_columns() -> None:
    text = to_latex(table())
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lrrr}"):
        assert word in text
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 2
    for line in lines:
        assert len(re.findall(r"(?<!\\)&", line)) == 3
    inside = text.split(r"\begin{table}")[1].split(r"\end{table}")[0]
    assert not re.findall(r"(?<!\\)[%#]", inside)
    assert "<" not in inside
    bare = re.sub(r"\\[{}]", "", inside)
    assert bare.count("{") == bare.count("}")


def test_a_title_that_begins_with_a_bracket_or_a_star_is_no_argument_of_the_line_before(tmp_path: Path) -> None:
    columns = [Column("variant", "name"), Column("n", "count")]
    rows = [WideRow(name, "test", [Entry(name), Entry("3")]) for name in ("[2pt] a", "*b", "Ω-squash", "plain")]
    (tmp_path / "heads.tex").write_text(to_latex(WideTable("heads", columns, rows, ["A title."])), encoding="utf-8")
    command = [tool("pdflatex"), "-interaction=nonstopmode", "-halt-on-error", "heads.tex"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert made.returncode == 0, made.stdout[-800:]
    lines = (tmp_path / "heads.tex").read_text().splitlines()
    assert not [line for line in lines if line.startswith(("[", "*"))]


def test_latex_compiles_by_itself_and_inside_a_document(spoiled: tuple[Path, Report], tmp_path: Path) -> None:
    (tmp_path / "nasty.tex").write_text(to_latex(table()), encoding="utf-8")
    for task in toy.TASKS:
        shutil.copy(spoiled[0] / "tables" / f"{task}.tex", tmp_path)
    inputs = "".join(rf"\input{{{task}}}" for task in ["nasty", *toy.TASKS])
    outer = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    (tmp_path / "outer.tex").write_text(outer)
    for name in ("nasty", "mnist", "multimnist", "outer"):
        command = [tool("pdflatex"), "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
        assert made.returncode == 0, made.stdout[-2000:]
        assert (tmp_path / f"{name}.pdf").stat().st_size > 1000


def test_a_table_longer_than_a_page_goes_on_on_the_next(tmp_path: Path) -> None:
    columns = [Column("variant", "name"), Column("n", "count")]
    rows = [WideRow(f"row {k}", "test", [Entry(f"row {k}"), Entry("3")]) for k in range(90)]
    text = to_latex(WideTable("long", columns, rows, ["A title."]))
    assert text.count(r"\begin{longtable}{lr}") == 1
    (tmp_path / "long.tex").write_text(text)
    outer = r"\documentclass{article}\usepackage{booktabs,longtable}\begin{document}\input{long}\end{document}"
    (tmp_path / "outer.tex").write_text(outer)
    for name in ("long", "outer"):
        command = [tool("pdflatex"), "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
        assert made.returncode == 0, made.stdout[-800:]
        assert "Float too large" not in made.stdout
        assert re.search(rf"{name}.pdf \([2-9] pages", made.stdout), made.stdout[-800:]


def test_markdown_is_escaped_and_rectangular() -> None:
    assert markdown_text("a|b <i> *c* _d_ `e`") == r"a\|b \<i\> \*c\* \_d\_ \`e\`"
    text = to_markdown(table())
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 3
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert not re.search(r"(?<!\\)<", text)
    assert text.startswith("**A title")


def test_terminal_takes_no_markup_and_no_control_characters() -> None:
    text = to_terminal(table("[bold red]x[/] \x1b[31m\x07 y"), width=120)
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_terminal_leaves_out_columns_that_do_not_fit_and_says_so(healthy: Path) -> None:
    text, failed = format_tables_for_terminal(healthy, width=90)
    assert failed == 0
    assert max(map(len, text.splitlines())) <= 90
    part = text[text.index("Two overlapping") : text.index("Trained on single")]
    words = " ".join(part.split())
    assert "Not shown here but in tables/multimnist.md" in words
    assert re.search(r"CapsNet r=3, reconstruction +6\.\d\d ± ", part)
    assert "Not shown here" not in format_tables_for_terminal(healthy, width=300)[0]


def test_terminal_shows_every_task_with_its_caption(spoiled: tuple[Path, Report]) -> None:
    text = " ".join(format_tables_for_terminal(spoiled[0])[0].split())
    for part in ("Test error on MNIST, last epoch", "affnist-synth", "Budget: reduced", "failed or not matched"):
        assert part in text
    assert "0.25 (sd 0.005)" in text


def test_the_paper_s_column_is_left_out_with_the_metric_that_it_stands_beside() -> None:
    labels = {
        "variant": "name",
        "error, %": "value",
        "a measure of a long name": "value",
        "paper": "paper",
        "n": "count",
    }
    columns = [Column(label, kind) for label, kind in labels.items()]  # type: ignore[arg-type]
    rows = [WideRow("a", "test", [Entry(text) for text in ("a", "1.50 ± 0.10", "2.50 ± 0.10", "0.25", "3")])]
    made = WideTable("toy", columns, rows, ["A title."])
    assert "0.25" in to_terminal(made, width=80)
    narrow = to_terminal(made, width=50)
    assert "1.50 ± 0.10" in narrow
    assert "0.25" not in narrow
    assert "paper" not in narrow
    assert " ".join(narrow.split()).endswith("Not shown here but in tables/toy.md: a measure of a long name.")
