"""A table in files: as CSV, as Markdown and as LaTeX; and on the terminal."""

from __future__ import annotations

import io
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from capsbench.files import write_text
from capsbench.report.tables import csv_text
from capsbench.report.wide import BOLD, Column, Entry, WideRow, WideTable

if TYPE_CHECKING:
    from rich.table import Table

# After \documentclass LaTeX turns the command into one that only complains: then the file is being \input.
LATEX_HEAD = r"""% A table of capsbench. It compiles as it is, and can be \input into a document that loads booktabs and
% longtable.
\makeatletter
\ifx\documentclass\@twoclasseserror\else\ifx\documentclass\@notprerr\else
\documentclass{article}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{booktabs,longtable}
\setlength{\LTcapwidth}{\linewidth}
\begin{document}
\def\capsbenchtail{\end{document}}
\fi\fi
\makeatother
"""
LATEX_TAIL = "\\ifx\\capsbenchtail\\undefined\\else\\expandafter\\capsbenchtail\\fi\n"
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\dots{}",
    "’": "'",
    "λ": r"$\lambda$",
    "²": r"\textsuperscript{2}",
    "[": "{[}",  # at the head of a row these two are read as arguments of the line break before it
    "*": "{*}",
}
ENDINGS = ("csv", "md", "tex")  # of the files that a table has
ON_A_PAGE = 25  # rows of numbers that surely have room on one; of sentences, of several lines each, half as many
LEFT = ("name", "condition", "text")  # kinds of columns that stand on the left
MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def one_line(text: str) -> str:
    """`text` without control characters and with every run of white space as one space."""
    return " ".join("".join(c if unicodedata.category(c)[0] != "C" or c.isspace() else "�" for c in text).split())


def latex_text(text: str) -> str:
    """`text` so that LaTeX prints it as it is; a character that plain LaTeX does not know is given as its number."""
    shown = []
    for character in one_line(text):
        if character in LATEX_SPECIAL:
            shown.append(LATEX_SPECIAL[character])
        elif ord(character) < 128 or (unicodedata.name(character, "").startswith("LATIN") and ord(character) < 384):
            shown.append(character)
        else:
            shown.append(f"{{[}}U+{ord(character):04X}]")
    return re.sub("-(?=-)", "-{}", "".join(shown))  # two hyphens are two hyphens


def markdown_text(text: str) -> str:
    """`text` so that Markdown (and the HTML that it may become) shows it as it is."""
    return MARKDOWN_SPECIAL.sub(r"\\\1", one_line(text))


def write_table(folder: Path, name: str, frame: pd.DataFrame, *tables: WideTable, above: str = "") -> list[Path]:
    """Write `frame` as <name>.csv and the readable tables as <name>.md (with `above` before them) and <name>.tex.

    Returns the three paths; each file is written in one piece.
    """
    paths = [folder / f"{name}.{ending}" for ending in ENDINGS]
    write_text(paths[0], csv_text(frame))
    write_text(paths[1], above + "\n".join(to_markdown(table) for table in tables))
    write_text(paths[2], to_latex(*tables))
    return paths


def to_markdown(table: WideTable) -> str:
    """The table and its caption as Markdown. A variant is shown by its title and, where that differs, its name."""
    head = [markdown_text(column.label) for column in table.columns]
    rule = [":--" if column.kind in LEFT else "--:" for column in table.columns]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(rule)} |"]
    for row in table.rows:
        texts = [f"**{markdown_text(e.text)}**" if e.bold else markdown_text(e.text) for e in row.entries]
        if row.variant != row.entries[0].text:
            texts[0] += f" · {markdown_text(row.variant)}"
        lines.append(f"| {' | '.join(texts)} |")
    title, *rest = (markdown_text(sentence) for sentence in table.caption)
    return "\n".join([f"**{title}** {' '.join(rest)}", "", *lines, ""])


def to_latex(*tables: WideTable) -> str:
    """Tables with their captions as LaTeX (booktabs): a document by themselves, tables where they are \\input."""
    return LATEX_HEAD + "\n".join(_latex_table(table) for table in tables) + "\n" + LATEX_TAIL


def _latex_table(table: WideTable) -> str:
    texts = [column.kind for column in table.columns].count("text")
    align = "".join(_latex_column(column, texts) for column in table.columns)
    head = [r"\toprule", " & ".join(latex_text(column.label) for column in table.columns) + r" \\", r"\midrule"]
    rows = [_latex_row(row) for row in table.rows]
    size = r"\footnotesize\sloppy" if texts else r"\small"
    caption = rf"\caption{{{latex_text(' '.join(table.caption))}}}"
    label = rf"\label{{tab:{re.sub('[^A-Za-z0-9-]', '-', table.task)}}}"
    if len(rows) > ON_A_PAGE // (2 if texts else 1):
        lines = ["{" + size, rf"\begin{{longtable}}{{{align}}}", rf"{caption}{label}\\", *head, r"\endfirsthead"]
        lines += [*head, r"\endhead", r"\bottomrule", r"\endfoot", *rows, r"\end{longtable}", "}"]
    else:
        lines = [r"\begin{table}", rf"\centering{size}", caption, label, rf"\begin{{tabular}}{{{align}}}"]
        lines += [*head, *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines)


def _latex_column(column: Column, texts: int) -> str:
    """Sentences share half of a landscape page and wrap."""
    if column.kind == "text":
        return rf"p{{{140 // texts}mm}}"
    return "l" if column.kind in LEFT else "r"


def _latex_row(row: WideRow) -> str:
    texts = [latex_text(entry.text) for entry in row.entries]
    shown = [rf"\textbf{{{text}}}" if entry.bold else text for text, entry in zip(texts, row.entries, strict=True)]
    return " & ".join(shown) + r" \\"


def to_terminal(table: WideTable, width: int = 100) -> str:
    """The table with its caption as plain text. Columns that `width` cannot hold are left to the files, and said so."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False, force_terminal=False)
    values = [k for k, column in enumerate(table.columns) if column.kind == "value"]
    dropped: list[int] = []
    shown = _rich_table(table, dropped)
    unbounded = console.options.update(max_width=10_000)
    while console.measure(shown, options=unbounded).maximum > width and len(values) > 1:
        last = values.pop()
        dropped += [
            last + k for k, column in enumerate(table.columns[last : last + 2]) if not k or column.kind == "paper"
        ]
        shown = _rich_table(table, dropped)
    title, *rest = (sentence.replace(BOLD, "With a star:", 1) for sentence in table.caption)
    if dropped:
        names = "; ".join(table.columns[k].label for k in sorted(dropped) if table.columns[k].kind == "value")
        rest.append(f"Not shown here but in tables/{table.task}.md: {names}.")
    console.print(Text(one_line(title)))
    console.print(shown)
    console.print(Text(one_line(" ".join(rest))))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _starred(entry: Entry) -> str:
    """Its text; what is bold in the other formats has a star, since this one is plain."""
    return one_line(entry.text) + " *" * entry.bold


def _rich_table(table: WideTable, dropped: list[int]) -> Table:
    """The table for rich's console without the columns `dropped`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    kept = [k for k in range(len(table.columns)) if k not in dropped]
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for k in kept:
        column = table.columns[k]
        justify: Literal["left", "right"] = "left" if column.kind in LEFT else "right"
        shown.add_column(Text(one_line(column.label)), justify=justify)
    for row in table.rows:
        shown.add_row(*(Text(_starred(row.entries[k])) for k in kept))
    return shown
