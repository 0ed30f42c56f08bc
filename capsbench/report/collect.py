"""Read results/<plan> into one tidy frame, and name every run that cannot be counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from capsbench.report.contract import Manifest, Metrics, Plan, PlannedRun, RunKey, UnreadableFileError, read, read_plan
from capsbench.report.mixtures import leave_out_copies, leave_out_other_budgets, warn_of_mixtures
from capsbench.report.published import load_published
from capsbench.report.results import APART, COLUMNS, IN_THE_MEANS, KINDS, Problem, Results, Run, run_folder

OTHERWISE_TRAINED = "trained by source code other than today's; `capsbench run` or `train` makes it again"
OTHERWISE_SCORED = "scored with options or source code other than today's plan and evaluation have"
NO_MANIFEST = "no manifest yet: not trained, or training is under way"


def collect(folder: Path, plan: Plan | None = None) -> Results:
    """Read plan.json and the runs in `folder`. Anything wrong with a run becomes a problem, and the run is left out.

    plan: what counts instead of plan.json. Raises ResultsError if that is missing or broken, PlanError if
    config/published.yaml is.
    """
    plan = plan or read_plan(folder)
    published = load_published().on(plan.dataset.name)
    results = Results(folder, plan, {}, pd.DataFrame(columns=COLUMNS), [], published)
    planned: dict[RunKey, PlannedRun] = {}
    for entry in results.plan.runs:
        if entry.key in planned:
            results.problem(
                "duplicated", folder / "plan.json", entry.key, "plan.json lists the run twice; counted once"
            )
        planned.setdefault(entry.key, entry)
    for key, entry in planned.items():
        run = _read_run(results, key, entry.config, planned)
        if run is not None:
            results.runs[key] = run
    leave_out_other_budgets(results)
    leave_out_copies(results)
    for run in results.runs.values():
        if run.manifest.status == "done":
            _read_metrics(results, run, planned)
    warn_of_mixtures(results)
    _name_strangers(results, planned)
    _same_data(results)
    for run in results.runs.values():
        run.apart = {name: run.metrics.pop(name) for name in APART if name in run.metrics}
    _same_conditions(results)
    frame = _frame(results)
    is_apart = frame["condition"].isin(APART)
    results.frame, results.apart = frame[~is_apart], frame[is_apart]
    order = list(KINDS)
    tasks = list(results.plan.tasks)
    results.problems.sort(key=lambda p: (order.index(p.kind), tasks.index(p.task) if p.task in tasks else len(tasks)))
    return results


def _read_run(results: Results, key: RunKey, config: str | None, planned: dict[RunKey, PlannedRun]) -> Run | None:
    """The run of `key` if it belongs to the plan; otherwise a problem."""
    folder = run_folder(results.folder, key)
    path = folder / "manifest.json"
    if not path.exists():
        results.problem("missing", path, key, NO_MANIFEST)
        return None
    try:
        manifest = read(path, Manifest)
    except UnreadableFileError as error:
        results.problem("unreadable", path, key, f"manifest.json {error}")
        return None
    if manifest.run.key != key:
        _misplaced(results, path, key, manifest.run.key, planned)
        return None
    plan, digests = results.plan, manifest.digests
    if manifest.dataset.name != plan.dataset.name:
        reason = f"trained on {manifest.dataset.name}, but the plan says {plan.dataset.name}"
    elif plan.dataset.digest and digests.get("data") and digests["data"] != plan.dataset.digest:
        reason = f"trained on files of {plan.dataset.name} other than the plan's (the data digests differ)"
    elif config and digests.get("config") != config:
        reason = "trained with a config other than the plan's (the config digests differ)"
    elif not config and digests.get("plan") != plan.digest:
        reason = "trained for another plan (the plan digests differ)"
    else:
        if manifest.status == "failed":
            results.problem("failed", path, key, manifest.reason or "no reason was recorded")
        if planned[key].outdated:
            results.problem("outdated", path, key, OTHERWISE_TRAINED)
        return Run(key, folder, manifest)
    results.problem("foreign", path, key, reason)
    return None


def _misplaced(
    results: Results,
    path: Path,
    key: RunKey,
    claimed: RunKey,
    planned: dict[RunKey, PlannedRun],
    condition: str | None = None,
) -> None:
    """The file at `path` says that it is of another run than its folder's."""
    if claimed in planned and (run_folder(results.folder, claimed) / "manifest.json").exists():
        results.problem("duplicated", path, key, f"{path.name} is a copy of {claimed}'s", condition)
    else:
        results.problem("foreign", path, key, f"{path.name} says that it belongs to {claimed}", condition)


def _read_metrics(results: Results, run: Run, planned: dict[RunKey, PlannedRun]) -> None:
    """Fill `run.metrics` from every <condition>/metrics.json that is sound."""
    for path in sorted(run.folder.glob("*/metrics.json")):
        condition = path.parent.name
        try:
            metrics = read(path, Metrics)
        except UnreadableFileError as error:
            results.problem("unreadable", path, run.key, f"metrics.json {error}", condition)
            continue
        if metrics.run.key != run.key:
            _misplaced(results, path, run.key, metrics.run.key, planned, condition)
        elif metrics.condition != condition:
            results.problem("foreign", path, run.key, f"metrics.json says condition {metrics.condition!r}", condition)
        elif metrics.weights and run.manifest.weights and metrics.weights != run.manifest.weights:
            results.problem("foreign", path, run.key, "scored with other weights than the run has now", condition)
        else:
            run.metrics[condition] = metrics
            wanted = planned[run.key].evaluation
            if wanted and metrics.digest and metrics.digest != wanted:
                results.problem("outdated", path, run.key, OTHERWISE_SCORED, condition)
            if metrics.status == "not matched":
                reason = metrics.reason or "no reason was recorded"
                results.problem("not matched", path, run.key, reason, condition)


def _name_strangers(results: Results, planned: dict[RunKey, PlannedRun]) -> None:
    """Every folder with a manifest that the plan does not name is a foreign run."""
    known = {run_folder(results.folder, key) for key in planned}
    for path in sorted((results.folder / "runs").glob("*/*/*/manifest.json")):
        if path.parent not in known:
            task, variant, name = path.relative_to(results.folder / "runs").parts[:3]
            number = name.removeprefix("seed-")
            seed = int(number) if number.isdecimal() and f"seed-{int(number)}" == name else None
            file = path.relative_to(results.folder).as_posix()
            reason = "the plan does not name this run" if seed is not None else f"{name!r} is not the folder of a seed"
            results.problems.append(Problem("foreign", task, variant, seed, None, file, reason))


def _conditions(results: Results) -> Iterator[tuple[Run, Metrics]]:
    for run in results.runs.values():
        for metrics in [*run.metrics.values(), *run.apart.values()]:
            yield run, metrics


def _same_data(results: Results) -> None:
    """Leave out what was scored on other data, or on another number of images, than the rest of its cell.

    A task has one data set: the plan's where it occurs, else the official one, else the most frequent.
    """
    names: dict[str, Counter[str]] = {}
    for run, metrics in _conditions(results):
        names.setdefault(run.key.task, Counter())[metrics.dataset.name] += 1
    for run, metrics in list(_conditions(results)):
        found = names[run.key.task]
        ours = {results.plan.dataset.name: 2, run.key.task: 1}  # the official affNIST files bear the task's own name
        name = max(sorted(found), key=lambda n: (ours.get(n, 0), found[n]))
        if metrics.dataset.name != name:
            reason = f"scored on {metrics.dataset.name}, but the task's other runs were scored on {name}"
            _leave_out(results, run, metrics, reason)
    sizes: dict[tuple[str, str, str], Counter[int]] = {}
    for run, metrics in _conditions(results):
        sizes.setdefault((run.key.task, run.key.variant, metrics.condition), Counter())[metrics.images] += 1
    for run, metrics in list(_conditions(results)):
        counts = sizes[run.key.task, run.key.variant, metrics.condition]
        size = max(counts, key=lambda images: (counts[images], images))
        if metrics.images != size:
            reason = f"scored on {metrics.images:,} images, but other seeds were scored on {size:,}"
            _leave_out(results, run, metrics, reason)


def _leave_out(results: Results, run: Run, metrics: Metrics, reason: str) -> None:
    del run.metrics[metrics.condition]
    path = run.folder / metrics.condition / "metrics.json"
    results.problem("foreign", path, run.key, reason, metrics.condition)


def _same_conditions(results: Results) -> None:
    """Seeds of a cell are scored under the same conditions; where one is not, it is missing."""
    expected: dict[tuple[str, str], set[str]] = {}
    for run, metrics in _conditions(results):
        expected.setdefault(run.key[:2], set()).add(metrics.condition)
    for run in results.runs.values():
        if run.manifest.status == "failed":
            continue
        of_run = [p for p in results.problems if (p.task, p.variant, p.seed) == run.key]
        named = {p.condition for p in of_run if p.kind not in IN_THE_MEANS}
        wanted = expected.get(run.key[:2], set())
        if not run.metrics and not named and not wanted - set(APART):
            results.problem("missing", run.folder / "manifest.json", run.key, "trained, but not evaluated yet")
        for condition in sorted(wanted - run.metrics.keys() - run.apart.keys() - named):
            path = run.folder / condition / "metrics.json"
            results.problem("missing", path, run.key, "trained, but not evaluated under this condition yet", condition)


def _frame(results: Results) -> pd.DataFrame:
    """One row per run x condition x metric of the runs that count."""
    rows: list[dict[str, object]] = []
    for run, metrics in _conditions(results):
        for name, metric in metrics.metrics.items():
            if metrics.status != "done":
                continue
            if metric.value is None:
                path = run.folder / metrics.condition / "metrics.json"
                results.problem("undefined", path, run.key, f"{name} has no value here", metrics.condition)
                continue
            rows.append(
                {
                    **run.key._asdict(),
                    "condition": metrics.condition,
                    "dataset": metrics.dataset.name,
                    "badge": metrics.dataset.badge,
                    "metric": name,
                    "unit": metric.unit,
                    "value": metric.value,
                    "images": metrics.images,
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)
