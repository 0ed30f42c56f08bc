"""How a model's answer to two digits comes from what it says of each alone: a look at why lengths of vectors transfer.

    python benchmarks/two_from_one.py RUN... --plan config/lengths.yaml [--to FILE.json] [--threads 1]

Each RUN is the folder of a finished run of the two-digit transfer, with its weights.safetensors, whose scores come from
one linear map of features summed over all places: plain numbers, or lengths of vectors. What the map gives the classes,
numbers or vectors e, is looked at for every test pair, e(pair), and for each of its digits on 28x28 as in training,
e(A) and e(B). The trunk does not pad, so in a pair the places of A and those of B give what they give alone, and
e(pair) = e(A) + e(B) - bias + what the places between see, of both digits. Classes are ranked by their scores, and a
pair is right if its own two come first, in four ways:

    whole      e(pair): the accuracy of the final weights
    added      e(A) + e(B) - bias: without the places between
    unopposed  the same, but a digit's own class has what that digit gives it alone: the other adds nothing to it
    larger     the larger of both digits' scores: neither adds anything to the other

So `added` less than `larger` is what the digits do to each other, and `whole` less than `added` what the places between
do. Four medians over digits follow, of what ranks a class, the number or the length of e, when the digit is alone:
`own` its class, `other` the other digit's class, `third` the best of the others; and `kept`, of what its own class has
over `third`, the share that it has in the whole pair (below 0 it lost its place).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from arguments import at_least
from finished_run import as_planned, manifest_of
from torch import Tensor, nn

from capsbench.cli.options import file_to_write, is_json
from capsbench.data.digits import load_digits
from capsbench.errors import CapsbenchError
from capsbench.evaluation.run import load_model
from capsbench.files import write_json
from capsbench.plan.tasks import TwoDigitTask
from capsbench.plan.variants import TwoDigitSpec
from capsbench.provenance import digest_of_file, git_state, machine, versions
from capsbench.routing.squash import length
from capsbench.training.exact_set import exactly
from capsbench.training.probe_two_digit import make_pairs

REPOSITORY = Path(__file__).resolve().parent.parent
BATCH = 250
WAYS = ("whole", "added", "unopposed", "larger")
MEDIANS = ("own", "other", "third", "kept")


def main() -> int:
    """Print a table, one row for each run and condition."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a finished run's folder, weights included")
    parser.add_argument("--plan", type=Path, default=REPOSITORY / "config" / "lengths.yaml")
    parser.add_argument("--to", type=Path, help="a JSON file for the table, with the weights' digests and the machine")
    parser.add_argument("--threads", type=at_least(1), default=1, help="a run takes some two minutes of one")
    given = parser.parse_args()
    git_state()  # kept: the commit that runs, whatever is committed meanwhile
    torch.set_num_threads(given.threads)
    try:
        given.to = given.to and file_to_write("--to", given.to, "two-from-one.json", is_json)
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
    manifest = manifest_of(run)
    house, source, cell = as_planned(manifest, plan)
    variant, spec, options = manifest["run"]["variant"], cell.spec, cell.options
    if not isinstance(spec, TwoDigitSpec) or spec.head != "pool" or spec.dense or spec.pooling != "sum":
        sys.exit(f"{run} is of {cell.label}; this looks at scores that are one linear map of sums.")
    if not isinstance(options, TwoDigitTask) or options.squeezed:
        sys.exit(f"{run} is of {cell.label}; this looks at pairs of two_digit that are not squeezed.")
    weights = run / "weights.safetensors"
    if not weights.is_file() or digest_of_file(weights) != manifest["weights"]:
        sys.exit(f"{weights} is missing, or not what the run's manifest.json tells of; train the run again.")
    model = load_model(house, cell, weights)
    test = load_digits(source, torch.device("cpu")).test
    bias = model.classes.bias.detach().view(1, 10, -1)  # type: ignore[operator, union-attr]  # [1, K, D]
    numbers = spec.scores == "classes"
    rows = []
    for condition, pairs in make_pairs(options, test).items():
        right, ranks = [], []
        for start in range(0, pairs.size, BATCH):
            made = pairs.make(torch.arange(start, min(start + BATCH, pairs.size)))
            alone = test.images[made.bases].float() / 255  # [n, 2, 28, 28]
            whole, a, b = (given_by(model, x) for x in (made.images, alone[:, :1], alone[:, 1:]))
            right.append(rightly(whole, a, b, bias, made.labels, numbers))
            ranks.append(ranks_of(whole, a, b, made.labels, numbers))
        accuracies = 100 * torch.cat(right).double().mean(0)
        medians = torch.cat(ranks).median(0).values
        rows.append(
            {"variant": variant, "seed": manifest["run"]["seed"], "condition": condition, "pairs": pairs.size}
            | dict(zip(WAYS, accuracies.tolist(), strict=True))
            | dict(zip(MEDIANS, medians.tolist(), strict=True))
            | {"digest": manifest["digest"], "weights": manifest["weights"]}
        )
    return rows


@torch.inference_mode()
def given_by(model: nn.Module, images: Tensor) -> Tensor:
    """What the model's last linear map gives each class of images [n, 1, H, W]: [n, K, D] float32, D = 1 of numbers."""
    seen: list[Tensor] = []
    handle = model.classes.register_forward_hook(lambda module, inputs, output: seen.append(output))  # type: ignore[union-attr]
    try:
        model(images)
    finally:
        handle.remove()
    return seen[0].unflatten(1, (10, -1))


def ranked(e: Tensor, numbers: bool) -> Tensor:
    """What ranks classes given e [n, K, D] as their scores do: [n, K]. Sigmoid and squash keep the order."""
    return e.squeeze(2) if numbers else length(e)


def rightly(whole: Tensor, a: Tensor, b: Tensor, bias: Tensor, labels: Tensor, numbers: bool) -> Tensor:
    """Whether pairs are right in each of WAYS: [n, 4] bool.

    Args:
        whole, a, b: e of the pairs and of their first and second digits alone, [n, K, D].
        bias: of the map, [1, K, D], which a and b both have.
        labels: [n, 2] int64.
        numbers: e are plain numbers (D = 1) and not vectors.
    """
    added = a + b - bias  # [n, K, D]
    unopposed = added.clone()
    rows = torch.arange(len(labels))
    for digit, alone in zip(labels.unbind(1), (a, b), strict=True):
        unopposed[rows, digit] = alone[rows, digit]
    larger = torch.maximum(ranked(a, numbers), ranked(b, numbers))
    scores = [ranked(whole, numbers), ranked(added, numbers), ranked(unopposed, numbers), larger]
    return torch.stack([exactly(of, labels) for of in scores], 1)


def ranks_of(whole: Tensor, a: Tensor, b: Tensor, labels: Tensor, numbers: bool) -> Tensor:
    """MEDIANS of every digit, the first digits of the pairs before the second: [2n, 4]; arguments as of `rightly`."""
    in_pair = ranked(whole, numbers)  # [n, K]
    found = []
    for place, e in enumerate((a, b)):
        alone = ranked(e, numbers)  # [n, K]
        own, other = alone.gather(1, labels).roll(-place, 1).unbind(1)
        third, third_in_pair = (
            scores.scatter(1, labels, torch.full(labels.shape, -torch.inf)).amax(1) for scores in (alone, in_pair)
        )
        over = in_pair.gather(1, labels)[:, place] - third_in_pair
        found.append(torch.stack([own, other, third, over / (own - third)], 1))
    return torch.cat(found)


if __name__ == "__main__":
    sys.exit(main())
