"""`capsbench weights` and `capsbench evaluate --weights`: a model as one small file, and its figure again."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from capsbench.cli.held import held_device
from capsbench.cli.inputs import check_weights
from capsbench.cli.options import file_to_write, is_weights
from capsbench.data.source import DataSource, find_source, source_digest, verify
from capsbench.errors import DataError
from capsbench.provenance import cores


def publish_weights(console: Console, run: Path, to: Path, device: str | None) -> None:
    """Write `to` from a run's folder and say what it gives. Raises CapsbenchError, DataError or ResourceError."""
    to = file_to_write("--to", to, f"{run.parent.name}-{run.name}.safetensors", is_weights)
    from capsbench.data.digits import load_digits
    from capsbench.evaluation.weights import publish, published_run

    manifest = published_run(run)
    check_weights(run, manifest)
    source = _source(manifest["dataset"]["name"])
    with held_device(console, device, cores()) as chosen:
        meta = publish(run, to, load_digits(source, chosen), source_digest(source), chosen)
    console.print(
        f"{to}: {to.stat().st_size / 1e6:.1f} MB, {_error(meta['correct'], meta['images'])} as stored", markup=False
    )


def evaluate_weights(console: Console, path: Path, device: str | None) -> bool:
    """Score a weights file on its data's test images and print it; whether that is what the file says.

    Raises DataError: the file or its data are not there, altered, or others.
    """
    from capsbench.data.digits import load_digits
    from capsbench.evaluation.weights import described, score

    meta = described(path)
    source = _source(meta["dataset"]["name"])
    if source_digest(source) != meta["data_digest"]:
        raise DataError(f"{path} was scored on data other than the {source.badge} found here ({source.origin}).")
    with held_device(console, device, cores()) as chosen:
        correct, images = score(path, load_digits(source, chosen), chosen)
    run = meta["run"]
    same = correct == meta["correct"]
    console.print(
        f"{run['task']}/{run['variant']} seed {run['seed']}, {source.badge}: {_error(correct, images)}; "
        f"{'as' if same else 'but'} the file says{'' if same else ' ' + _error(meta['correct'], images)}",
        markup=False,
    )
    return same


def _source(name: str) -> DataSource:
    source = find_source(name)
    verify(source)
    return source


def _error(correct: int, images: int) -> str:
    return f"{100 * (images - correct) / images:.2f} % error ({images - correct} of {images:,} images)"
