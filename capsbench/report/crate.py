"""An RO-Crate 1.1 (https://w3id.org/ro/crate/1.1): what a results folder holds, who made it and when, as one zip."""

from __future__ import annotations

import hashlib
import json
import mimetypes
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from capsbench import __version__
from capsbench.files import whole_file
from capsbench.report.results import Results, Run

PROFILE = "https://w3id.org/ro/crate/1.1"
LICENSE = "https://spdx.org/licenses/MIT"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip's earliest time: the same results give the same bytes
OF_A_RUN = ("manifest.json", "history.csv", "curve.csv")
OF_A_CONDITION = ("metrics.json", "*.csv")
OF_THE_PLAN = (
    *("plan.json", "data.json", "cost.json", "claims.json", "report.html", "tables/*", "figures/*"),
    *("tuning/*/*.json", "*.yaml", "*.py", "plan/**/*.py", "plan/*.y*ml"),
)
TYPES = {".md": "text/markdown", ".tex": "application/x-tex", ".csv": "text/csv", ".json": "application/json"}


def write_crate(path: Path, results: Results, tables: list[Path]) -> None:
    """Write the zip: `tables` at its root, plan, report, tables, figures, and each counted run's manifest and metrics.

    Weights, checkpoints and predictions are left out: they are large, and manifests carry their digests. So are runs
    that do not belong to the plan.
    """
    files = {table.name: table for table in tables} | _files(results)
    contents = {name: file.read_bytes() for name, file in sorted(files.items())}
    metadata = json.dumps(_metadata(results, contents), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    with whole_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, content in [("ro-crate-metadata.json", metadata.encode()), *contents.items()]:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


def _files(results: Results) -> dict[str, Path]:
    """The files by their names in the crate; a link is left out, it may lead anywhere."""
    found = [path for pattern in OF_THE_PLAN for path in results.folder.glob(pattern)]
    for run in results.runs.values():
        found += [path for pattern in OF_A_RUN for path in run.folder.glob(pattern)]
        counted = [run.folder / name for name in run.metrics | run.apart]  # not what other weights scored
        found += [path for folder in counted for pattern in OF_A_CONDITION for path in folder.glob(pattern)]
    return {
        path.relative_to(results.folder).as_posix(): path
        for path in found
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    }


def _metadata(results: Results, contents: dict[str, bytes]) -> dict[str, Any]:
    """ro-crate-metadata.json: the descriptor, the root, the software, every file, and every run as an action."""
    plan = results.plan
    runs = list(results.runs.values())
    finished = max((run.manifest.finished for run in runs if run.manifest.finished), default="1980-01-01T00:00:00Z")
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"capsbench results: {plan.name}",
        "description": f"{plan.about or plan.name} Budget: {plan.budget}. Data: {plan.dataset.badge}.",
        "datePublished": finished[:10],
        "license": {"@id": LICENSE},
        "identifier": plan.digest,
        "hasPart": [{"@id": _id(name)} for name in contents],
        "mentions": [{"@id": _action(run)} for run in runs],
    }
    descriptor = {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "conformsTo": {"@id": PROFILE},
        "about": {"@id": "./"},
    }
    software = {
        "@id": "#capsbench",
        "@type": "SoftwareApplication",
        "name": "capsbench",
        "softwareVersion": __version__,
    }
    licence = {"@id": LICENSE, "@type": "CreativeWork", "name": "MIT License", "identifier": "MIT"}
    files = [_file(name, content) for name, content in contents.items()]
    return {
        "@context": [f"{PROFILE}/context", {"sha256": "https://schema.org/sha256"}],  # younger than the profile's words
        "@graph": [descriptor, root, software, licence, *files, *(_run(run, contents, results) for run in runs)],
    }


def _file(name: str, content: bytes) -> dict[str, Any]:
    suffix = Path(name).suffix
    return {
        "@id": _id(name),
        "@type": "File",
        "name": name,
        "contentSize": str(len(content)),
        "encodingFormat": TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _run(run: Run, contents: dict[str, bytes], results: Results) -> dict[str, Any]:
    """One training as schema.org's CreateAction, with what it left."""
    manifest = run.manifest
    folder = run.folder.relative_to(results.folder).as_posix() + "/"
    action = {
        "@id": _action(run),
        "@type": "CreateAction",
        "name": str(run.key),
        "instrument": {"@id": "#capsbench"},
        "object": {"@id": _id("plan.json")},
        "result": [{"@id": _id(name)} for name in contents if name.startswith(folder)],
        "startTime": manifest.started,
        "endTime": manifest.finished,
        "actionStatus": {
            "@id": f"http://schema.org/{'Completed' if manifest.status == 'done' else 'Failed'}ActionStatus"
        },
        "error": manifest.reason,
    }
    return {key: value for key, value in action.items() if value is not None}


def _id(name: str) -> str:
    return quote(name)


def _action(run: Run) -> str:
    return f"#run/{_id(str(run.key))}"
