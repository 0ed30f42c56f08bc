"""Figure: the test images that most runs of most variants get wrong."""

from __future__ import annotations

from collections import Counter

import numpy as np

from capsbench.errors import counted
from capsbench.report.answers import Answers, read_answers
from capsbench.report.captions import conditions_in_words
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.mosaic import grid, show
from capsbench.report.figures.style import WIDTH, canvas
from capsbench.report.readers import AGAIN, read_arrays, scored
from capsbench.report.results import Results

TASK, CONDITION = "mnist", "test"
LINES, COLUMNS = 3, 12


def draw(results: Results) -> Drawing:
    """Pictures that evaluation stored, by the share of wrong answers, each variant counting alike."""
    answers: dict[str, list[Answers]] = {}
    pictures: dict[int, np.ndarray] = {}
    for run in scored(results, TASK, CONDITION):
        said = read_answers(results, run, CONDITION)
        if said is None or not len(said.labels):
            continue
        answers.setdefault(run.key.variant, []).append(said)
        stored = read_arrays(results, run, f"{CONDITION}/hardest.npz", {"indices": "n", "images": "n h w"})
        if stored is not None:
            pictures |= dict(zip(stored["indices"].tolist(), stored["images"], strict=True))
    if not pictures:
        why = f"no finished run of task {TASK} has a hardest.npz"
        raise NotDrawnError(f"{why}: {AGAIN}" if answers else why)
    labels = next(iter(answers.values()))[0].labels
    answers = {v: [a for a in of if np.array_equal(a.labels, labels)] for v, of in answers.items()}
    answers = {variant: of for variant, of in answers.items() if of}
    order = _hardest_first(list(answers.values()))
    chosen = [i for i in order if i in pictures][: LINES * COLUMNS]
    if not chosen:
        raise NotDrawnError("no image is wrong in any run")
    runs = [a for of in answers.values() for a in of]
    figure = canvas(WIDTH, 0.98 * -(-len(chosen) // COLUMNS) + 0.1)
    panels = figure.subplots(-(-len(chosen) // COLUMNS), 1, squeeze=False)[:, 0]
    for k, axes in enumerate(panels):
        line = chosen[k * COLUMNS : (k + 1) * COLUMNS]
        words = [_words(i, labels, runs) for i in line]
        show(axes, grid(1, COLUMNS, {(0, 0): np.stack([pictures[i] for i in line])}), [], words, size=7)
    if len(runs) == 1:
        return Drawing(
            figure,
            "Test images that the only run gets wrong",
            _of_one_run(results, next(iter(answers)), order),
            (TASK,),
        )
    everywhere = sum(all(a.predicted[i] != labels[i] for a in runs) for i in order)
    missing = sum(i not in pictures for i in order[: order.index(chosen[-1])])
    caption = (
        f"Test digits with the largest share of wrong answers over {counted(len(answers), 'variant')} (each counting "
        "equally) and their seeds, the hardest first; of equals, first the one whose true class is furthest behind. "
        "Above each: the label → the most frequent wrong answer, and in how many runs the answer is wrong. "
        f"{counted(everywhere, 'test image')} {'is' if everywhere == 1 else 'are'} wrong in all "
        f"{counted(len(runs), 'run')}. "
        + (f"Not among the pictures that evaluation stored: {counted(missing, 'harder image')}. " if missing else "")
        + " ".join(conditions_in_words(results, TASK))
    )
    return Drawing(figure, "The hardest test images", caption, (TASK,))


def _of_one_run(results: Results, variant: str, order: list[int]) -> str:
    """The caption where there is no second run to compare with."""
    return (
        f"The {counted(len(order), 'test digit')} that the only run, of {results.plan.title(variant)}, gets wrong (at "
        f"most {LINES * COLUMNS} are shown), first the one whose true class is furthest behind. Above each: the label "
        f"→ the answer. {' '.join(conditions_in_words(results, TASK))}"
    )


def _hardest_first(variants: list[list[Answers]]) -> list[int]:
    """The indices of images that some run gets wrong, by share of wrong answers, then by margin."""
    wrong = np.mean([np.mean([a.predicted != a.labels for a in of], axis=0) for of in variants], axis=0)  # [N]
    margin = np.mean([np.mean([a.margin for a in of], axis=0) for of in variants], axis=0)  # [N]
    order = np.lexsort((margin, -wrong))
    return [int(i) for i in order if wrong[i] > 0]


def _words(index: int, labels: np.ndarray, runs: list[Answers]) -> str:
    """`4→9\\n9/10`: label, the usual wrong answer, in how many runs if there are several."""
    said = Counter(int(a.predicted[index]) for a in runs if a.predicted[index] != labels[index])
    answer = max(sorted(said), key=lambda digit: said[digit])
    share = f"\n{said.total()}/{len(runs)}" if len(runs) > 1 else ""
    return f"{labels[index]}→{answer}{share}"
