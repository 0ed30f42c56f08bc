"""Every relative link in README.md and docs/ leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def prose(path: Path) -> str:
    """A page without its code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL))


def anchors(path: Path) -> set[str]:
    """What GitHub calls the headings of a page: in small letters, blanks as dashes, without marks."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> list[str]:
    """The targets of a page's links and pictures that are not addresses elsewhere."""
    found = re.findall(r"\]\(\s*([^)\s]+)\s*\)", prose(path))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in links(ROOT / page):
        name, _, anchor = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def files_named(page: str) -> list[str]:
    """The files of the repository that a page names in code: in one of its folders, and no patterns."""
    code = re.findall(r"`([^`\s]+\.(?:py|smk|yaml|json|txt|sh))`", (ROOT / page).read_text())
    return [name for name in code if (ROOT / name.split("/")[0]).is_dir() and not set(name) & set("<>*{}")]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    assert [name for name in files_named(page) if not (ROOT / name).is_file()] == []


def test_files_are_found_at_all() -> None:
    assert {"capsbench/plan/done.py", "tests/models/test_variants.py"} <= set(files_named("docs/extending.md"))


def test_links_are_found_at_all() -> None:
    assert {"docs/cluster.md", "docs/plans.md#what-quick-gives"} <= set(links(ROOT / "README.md"))
