"""How a model's answer to two digits comes from what it says of each alone: a look at why lengths of vectors transfer.

    python benchmarks/two_from_one.py RUN... --plan config/lengths.yaml [--to FILE.json]

Each RUN is the folder of a finished run of the two-digit transfer, with its weights.safetensors, whose scores come from
one linear map of pooled features: plain numbers, or lengths of vectors. Every test pair is shown whole, each of its
digits alone at its place, and nothing. What the map gives a class, a number or a vector e, hardly needs the pair: B
adds d(B) = e(B) - e(nothing), and e(pair) is nearly e(A) + d(B). Classes are ranked by their scores, and a pair is
right if its own two come first, in four ways:

    whole      e(pair): the accuracy of the final weights
    added      e(A) + d(B) for every class: nothing in the trunk sees both digits
    unopposed  the same, but a digit's own class has what that digit gives it alone: the other adds nothing to it
    larger     the larger of both digits' scores: neither adds anything to the other

Where digits speak against each other's class, `unopposed` and `larger` are right and `whole` is not. The other columns
are medians over digits, of what the other digit adds to a digit's own class, as shares of the |e| that it has alone:
`added size` is |d|, `added along` its part along e (-1 takes away all there is), `length kept` |e + d|.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from capsbench.data.digits import load_digits
from capsbench.errors import CapsbenchError
from capsbench.evaluation.run import load_model
from capsbench.files import read_json, write_json
from capsbench.pipeline import open_results
from capsbench.plan.variants import TwoDigitSpec
from capsbench.provenance import digest_of_file, git_state, machine, versions
from capsbench.routing.squash import length
from capsbench.training.exact_set import exactly
from capsbench.training.probe_two_digit import make_pairs

REPOSITORY = Path(__file__).resolve().parent.parent
BATCH = 250
WAYS = ("whole", "added", "unopposed", "larger")
SHARES = ("added size", "added along", "length kept")


def main() -> int:
    """Print a table, one row for each run and condition."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a finished run's folder, weights included")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "lengths.yaml")
    parser.add_argument("--to", type=Path, help="a JSON file for the table, with the weights' digests and the machine")
    given = parser.parse_args()
    try:
        rows = [row for run in given.runs for row in looked_at(run, given.plan)]
    except CapsbenchError as error:
        sys.exit(str(error))
    shown = pd.DataFrame(rows).drop(columns=["digest", "weights", "pairs"])
    print(shown.to_string(index=False, float_format="{:.2f}".format))
    if given.to is not None:
        made_by = {"git": git_state(), "versions": versions(), "machine": machine()}
        write_json(given.to, {"schema": 1, **made_by, "rows": rows})
    return 0


def looked_at(run: Path, plan: Path) -> list[dict[str, Any]]:
    """A row for each condition of a run. Ends this process with a sentence where it is none that this looks at."""
    try:
        manifest = read_json(run / "manifest.json")
    except (OSError, ValueError) as error:
        sys.exit(f"{run} is no finished run: {error}")
    task, variant = manifest["run"]["task"], manifest["run"]["variant"]
    house, source = open_results(plan)
    cell = house.cell(task, variant)
    spec = cell.spec
    if not isinstance(spec, TwoDigitSpec) or spec.head != "pool" or spec.dense or spec.pooling == "max":
        sys.exit(f"{run} is of {task}/{variant}; this looks at scores that are one linear map of sums or averages.")
    if {key: value for key, value in manifest["config"].items() if key != "steps"} != cell.config():
        sys.exit(f"{plan} trains {task}/{variant} in another way than this run; name the run's own plan with --plan.")
    weights = run / "weights.safetensors"
    if not weights.is_file() or digest_of_file(weights) != manifest["weights"]:
        sys.exit(f"{weights} is missing, or not what the run's manifest.json tells of; train the run again.")
    model = load_model(house, cell, weights)
    test = load_digits(source, torch.device("cpu")).test
    rows = []
    for condition, pairs in make_pairs(cell.options, test).items():  # type: ignore[arg-type]
        right, shares = [], []
        for start in range(0, pairs.size, BATCH):
            made = pairs.make(torch.arange(start, min(start + BATCH, pairs.size)))
            whole, a, b = (given_by(model, x) for x in (made.images, made.digits[:, :1], made.digits[:, 1:]))
            nothing = given_by(model, torch.zeros_like(made.images[:1]))  # [1, K, D]
            right.append(rightly(whole, a, b, nothing, made.labels, numbers=spec.scores == "classes"))
            shares.append(added_to_own(a, b, nothing, made.labels))
        accuracies = 100 * torch.cat(right).double().mean(0)
        medians = torch.cat(shares).median(0).values
        rows.append(
            {"variant": variant, "seed": manifest["run"]["seed"], "condition": condition, "pairs": pairs.size}
            | dict(zip(WAYS, accuracies.tolist(), strict=True))
            | dict(zip(SHARES, medians.tolist(), strict=True))
            | {"digest": manifest["digest"], "weights": manifest["weights"]}
        )
    return rows


@torch.inference_mode()
def given_by(model: nn.Module, images: Tensor) -> Tensor:
    """What the model's last linear map gives each class of images [n, 1, H, W]: [n, K, D] float32, D = 1 of numbers."""
    seen: list[Tensor] = []
    handle = model.classes.register_forward_hook(lambda module, inputs, output: seen.append(output))  # type: ignore[operator, union-attr]
    try:
        model(images)
    finally:
        handle.remove()
    return seen[0].unflatten(1, (10, -1))


def ranked(e: Tensor, numbers: bool) -> Tensor:
    """What ranks classes given e [n, K, D] as their scores do: [n, K]. Sigmoid and squash keep the order."""
    return e.squeeze(2) if numbers else length(e)


def rightly(whole: Tensor, a: Tensor, b: Tensor, nothing: Tensor, labels: Tensor, numbers: bool) -> Tensor:
    """Whether pairs are right in each of WAYS: [n, 4] bool.

    Args:
        whole, a, b: e of the pairs and of their first and second digits alone, [n, K, D].
        nothing: e of an empty image, [1, K, D].
        labels: [n, 2] int64.
        numbers: e are plain numbers (D = 1) and not vectors.
    """
    added = a + b - nothing  # [n, K, D]
    unopposed = added.clone()
    rows = torch.arange(len(labels))
    for digit, alone in zip(labels.unbind(1), (a, b), strict=True):
        unopposed[rows, digit] = alone[rows, digit]
    larger = torch.maximum(ranked(a, numbers), ranked(b, numbers))
    scores = [ranked(whole, numbers), ranked(added, numbers), ranked(unopposed, numbers), larger]
    return torch.stack([exactly(of, labels) for of in scores], 1)


def added_to_own(a: Tensor, b: Tensor, nothing: Tensor, labels: Tensor) -> Tensor:
    """What the other digit adds to a digit's own class, in SHARES of |e| alone: [2n, 3], the first digits before."""
    rows = torch.arange(len(labels))
    shares = []
    for digit, alone, other in zip(labels.unbind(1), (a, b), (b, a), strict=True):
        e = alone[rows, digit]  # [n, D]
        d = other[rows, digit] - nothing[0, digit]  # [n, D]
        size = length(e)  # [n]
        shares.append(torch.stack([length(d) / size, (d * e).sum(1) / size**2, length(e + d) / size], 1))
    return torch.cat(shares)


if __name__ == "__main__":
    sys.exit(main())
