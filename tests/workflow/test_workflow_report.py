"""Snakemake's own report, made offline: the page, every table and every figure, with captions and categories."""

from __future__ import annotations

import zipfile

import pytest


@pytest.mark.slow
def test_snakemake_s_report_has_the_page_the_tables_and_the_figures(done) -> None:
    made = done.folder / "report.zip"
    said = done.snakemake("--configfile", "tiny.yaml", "--report", made, "--nolock")
    assert said.code == 0, said.text
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        texts = [name for name in names if name.endswith((".html", ".js"))]
        text = "".join(archive.read(name).decode("utf-8", "replace") for name in texts)
    for path in [done.results / "report.html", *done.results.glob("tables/*.csv"), *done.results.glob("figures/*.png")]:
        assert any(name.endswith(f"/{path.name}") for name in names), path.name
    for category in ("Report", "Tables", "Figures"):
        assert f'"{category}"' in text
    for caption in ("provenance of every number", "interval over seeds", "its caption, with data"):
        assert caption in text
