"""Whatever a plan changes of the protocol under a budget's name is said, and judges no more than it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsbench.plan import House, config_folder
from capsbench.plan.claims import METRICS
from capsbench.report.contract import Reduced

SHORT = "budget: short\nseeds: [0, 1, 2, 3, 4]\ntraining: {epochs: 100%s}\n"
AUTHORS = "budget: authors\nseeds: [0, 1, 2, 3, 4]\ntraining: {steps: 300_000, decay_period: published%s}\n"
CNN = "mnist: {variants: [cnn]%s}"


def house(folder: Path, head: str, task: str) -> House:
    path = folder / "changed.yaml"
    path.write_text(f"name: changed\n{head}tasks:\n  {task}\n")
    return House.load(path)


@pytest.mark.parametrize(
    ("head", "task", "words"),
    [
        (AUTHORS % ", batch: 8", CNN % "", ["batch 8 instead of 128"]),
        (AUTHORS % ", rate: 0.01, decay: 1", CNN % "", ["rate 0.01 instead of 0.001", "decay 1.0 instead"]),
        (AUTHORS % "", CNN % ", training: {decay_period: 900}", ["decay_period 900 instead of published"]),
        (AUTHORS % "", CNN % ", training: {decay_period: 2000}", []),  # what published means on MNIST
        (SHORT % ", floor: 0.0001", CNN % "", ["floor 0.0001 instead of 1e-06"]),
        (SHORT % "", CNN % ", training: {decay_period: published}", ["decay_period published instead of scaled"]),
        (SHORT % ", precision: bf16", CNN % "", []),  # every manifest and caption names it
        (SHORT % "", "two_digit: {variants: [two-digit-kmeans], training: {decay: 1.0}}", []),  # the source's Adam
        (SHORT % "", "two_digit: {variants: [two-digit-kmeans]}", ["decay 0.96 instead of 1.0"]),
        (
            SHORT % "",
            "affnist: {variants: [cnn-pool], training: {epochs: 49}}",
            ["19,141 steps, less than the 50 epochs"],
        ),
        (SHORT % "", "affnist: {variants: [cnn-pool], training: {epochs: 50}}", []),
    ],
)
def test_another_training_than_the_budget_promises_judges_no_published_value(tmp_path, head, task, words) -> None:
    changed = house(tmp_path, head, task)
    for cell in changed.cells:
        said = [found for kind, found, _ in changed.reduced(cell) if kind == "training"]
        assert len(said) == len(words)
        assert all(found.startswith(wanted) for found, wanted in zip(said, words, strict=True))


LONG = "budget: reduced\nseeds: [0, 1, 2, 3, 4]\ntraining: {steps: %s}\n"
PAIRS = "multimnist: {variants: [multimnist-cnn], training: {steps: %s}}"
BOTH = "two_digit: {variants: [two-digit-kmeans, two-digit-average-mlp], training: {epochs: %s, decay: 1.0}}"


@pytest.mark.parametrize(
    ("head", "task", "said"),
    [
        (SHORT % "", CNN % "", [("budget", "46,875 steps instead of the authors' 300,000")]),
        (SHORT % "", CNN % ", training: {steps: 46_875}", [("budget", "46,875 steps instead of the authors' 300,000")]),
        (
            SHORT % "",
            CNN % ", training: {steps: 46_874}",
            [("training", "46,874 steps instead of the authors' 300,000")],
        ),
        (AUTHORS % "", CNN % "", []),
        (
            AUTHORS % "",
            CNN % ", training: {steps: 299_999}",
            [("training", "299,999 steps instead of the authors' 300,000")],
        ),
        (AUTHORS % "", PAIRS % 468_750, []),
        (AUTHORS % "", PAIRS % 468_749, [("training", "59,999,872 training pairs seen, of the paper's 60,000,000")]),
        (SHORT % "", BOTH % 20, []),
        (SHORT % "", BOTH % 10, [("training", "4,688 steps, less than the source's 20 epochs")]),
        (
            SHORT % "",
            BOTH % 9,
            [
                ("training", "4,219 steps, less than the source's 10 epochs"),
                ("training", "4,219 steps, less than the source's 20 epochs"),
            ],
        ),
        (LONG % 300_000, CNN % "", [("training", "300,000 steps")]),
        (LONG % 299_999, CNN % "", [("training", "299,999 steps instead of 300,000 steps")]),
    ],
)
def test_a_step_less_than_the_full_length_is_a_shorter_training(tmp_path: Path, head: str, task: str, said) -> None:
    """Which judges no published number, where 100 epochs of MNIST under their own name do."""
    changed = house(tmp_path, head, task)
    found = [(kind, words) for cell in changed.cells for kind, words, _ in changed.reduced(cell)]
    assert found == said


def test_a_variant_with_a_training_of_its_own_is_asked_for_by_its_name() -> None:
    paper = House.load(config_folder() / "paper.yaml")
    cell = paper.cell("two_digit", "two-digit-kmeans-source")  # ten epochs, as its title says
    assert paper.reduced(cell) == []


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (SHORT % "",
         ["46,875 steps instead of the authors' 300,000", "3 steps instead of the authors' 300,000 (mine)"]),
        ("budget: reduced\nseeds: [0, 1, 2, 3, 4]\ntraining: {epochs: 1}\n",
         ["1 epoch instead of 300,000 steps", "3 steps instead of 300,000 steps (mine)"]),
    ],
)  # fmt: skip
def test_a_length_of_one_variant_alone_is_said_of_it_alone(tmp_path: Path, head: str, said: list[str]) -> None:
    """Else a table's caption would say of every row that it was trained for three steps."""
    own = "variants: {mine: {base: cnn, title: Mine, training: {steps: 3}}}\n"
    changed = house(tmp_path, head + own, "mnist: {variants: [cnn, mine], axes: {per_class: [10]}}")
    words = {cell.variant: changed.reduced(cell)[0].words for cell in changed.cells}
    assert [words["cnn"], words["mine"]] == said
    assert [words[name].endswith("(mine)") for name in ("cnn+n10", "mine+n10")] == [False, True]


SEGMENTED = set(METRICS["multimnist"]["test"]) - {"error", "half_credit_error"}
ON_PAIRS = set(METRICS["two_digit"]["56x28"]) - {"single_error"}


@pytest.mark.parametrize(
    ("task", "words", "kind", "touched"),
    [
        ("mnist: {variants: [cnn], test_images: 500}", "500 of 10,000 test digits", "digits", None),
        (
            "mnist: {variants: [cnn], train_error_images: 100}",
            "training error on 100 digits",
            "digits",
            {"train_test_gap"},
        ),
        (
            "mnist: {variants: [cnn], test_images: 500}",  # no more are asked for the training error than are tested
            "training error on 500 digits",
            "digits",
            {"train_test_gap"},
        ),
        (
            "multimnist: {variants: [multimnist-cnn], test_pairs: 500}",
            "segmentation on 500 of 10,000 pairs",
            "digits",
            SEGMENTED,
        ),
        (
            "affnist: {variants: [cnn-pool], probe_images: 500}",
            "matched on 500 of 320,000 images",
            "digits",
            {"matched"},
        ),
        (
            "affnist: {variants: [cnn-pool], probe_images: 40_000}",
            "matched on 40,000 of 320,000 images",
            "measuring",
            None,  # it bars no claim, of whatever
        ),
        (
            "affnist: {variants: [cnn-pool], probe_images: 10_000}",  # one image of each digit
            "matched on 10,000 of 320,000 images",
            "measuring",
            None,
        ),
        (
            "affnist: {variants: [cnn-pool], held_out: 500}",
            "500 of 10,000 held-out digits",
            "digits",
            {"matched", "held_out_accuracy"},
        ),
        (
            "affnist: {variants: [cnn-pool], matched_at: 0.98}",
            "matched at 98.00% instead of 99.22%",
            "training",
            {"matched"},
        ),
        (
            "multimnist: {variants: [multimnist-cnn], segmentation_pairs: 500}",
            "segmentation on 500 of 10,000 pairs",
            "digits",
            SEGMENTED,
        ),
        (
            "multimnist: {variants: [multimnist-cnn], test_pairs: 20_000}",
            "20,000 of 10,000,000 test pairs",
            "digits",
            {"error", "half_credit_error"},
        ),
        (
            "multimnist: {variants: [multimnist-cnn], test_pairs: 500}",  # fewer than are drawn apart
            "500 of 10,000,000 test pairs",
            "digits",
            None,
        ),
        (
            "multimnist: {variants: [multimnist-cnn], test_pairs: 10_000}",  # all that are drawn apart
            "10,000 of 10,000,000 test pairs",
            "digits",
            {"error", "half_credit_error"},
        ),
        ("two_digit: {variants: [two-digit-kmeans], pairs: 500}", "500 of 10,000 test pairs", "digits", ON_PAIRS),
        (
            "two_digit: {variants: [two-digit-kmeans], squeezed: true}",
            "pairs squeezed to 28x28",
            "experiment",
            ON_PAIRS,
        ),
    ],
)
def test_images_that_all_seeds_share_are_fewer_digits_for_what_is_measured_on_them(
    tmp_path: Path, task: str, words: str, kind: str, touched: set[str] | None
) -> None:
    """`touched`: metrics and conditions that a claim may name; None: all."""
    fewer = house(tmp_path, SHORT % "", task)
    (found,) = (found for found in fewer.reduced(fewer.cells[0]) if found.words == words)
    assert found.kind == kind
    read = Reduced.model_validate(found.as_json())
    conditions = METRICS[fewer.cells[0].task]
    names = {*conditions, *(name for metrics in conditions.values() for name in metrics)}
    assert {name for name in names if read.touches(None, name)} == (names if touched is None else touched)
    assert {name for name in names if read.touches(name, "another")} == (names if touched is None else touched)


def test_narrow_models_and_other_digits_are_another_experiment(tmp_path: Path) -> None:
    path = tmp_path / "changed.yaml"
    head = "name: changed\nbudget: reduced\nseeds: [0, 1, 2, 3, 4]\nuci_digits: true\nwidth: 0.125\n"
    path.write_text(f"{head}training: {{epochs: 1}}\ntasks:\n  {CNN % ''}\n")
    changed = House.load(path, "uci-digits")
    said = {words: kind for kind, words, _ in changed.reduced(changed.cells[0])}
    assert (said["UCI digits, not MNIST"], said["width 1/8"]) == ("experiment", "experiment")


@pytest.mark.parametrize(
    ("epochs", "task", "words"),
    [
        (1, CNN % "", "1 epoch instead of 300,000 steps"),
        (2, CNN % "", "2 epochs instead of 300,000 steps"),
        (1, "affnist: {variants: [cnn-pool]}", "1 epoch"),  # nobody published how long
    ],
)
def test_a_reduced_training_is_held_against_the_published_one_where_there_is_one(tmp_path, epochs, task, words) -> None:
    plan = house(tmp_path, f"budget: reduced\nseeds: [0, 1, 2, 3, 4]\ntraining: {{epochs: {epochs}}}\n", task)
    (cell,) = plan.cells
    assert [(found.kind, found.words) for found in plan.reduced(cell)] == [("training", words)]


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("affnist: {variants: [cnn-pool], held_out: 20_000}", ["40,000 training digits"]),
        ("affnist: {variants: [cnn-pool], held_out: 20_000, train_images: 30_000}", ["30,000 training digits"]),
        ("two_digit: {variants: [two-digit-kmeans], training: {decay: 1.0}, last_epochs: 6}", []),  # a mean over more
    ],
)
def test_only_what_is_less_is_said(tmp_path: Path, task: str, words: list[str]) -> None:
    plan = house(tmp_path, SHORT % "", task)
    (cell,) = plan.cells
    assert [found.words for found in plan.reduced(cell) if "steps" not in found.words] == words


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ("epochs: 2", ["the last 2 epochs instead of 5"]),
        ("epochs: 4.5", []),  # the one that was begun is the fifth
        ("steps: 100", ["the last epoch instead of 5"]),
        ("epochs: 10", []),
    ],
)
def test_a_mean_over_all_the_epochs_there_are_is_said_to_be_over_fewer(tmp_path: Path, training, said) -> None:
    task = f"two_digit: {{variants: [two-digit-kmeans], training: {{{training}}}}}"
    plan = house(tmp_path, "budget: reduced\nseeds: [0, 1, 2, 3, 4]\ntraining: {epochs: 1}\n", task)
    (cell,) = plan.cells
    found = [found for found in plan.reduced(cell) if "instead of 5" in found.words]
    assert [found.words for found in found] == said
    assert all(found.kind == "measuring" for found in found)


def test_an_epoch_of_few_digits_is_as_short_as_they_are_few(tmp_path: Path) -> None:
    """Rows of an axis train as many steps as the rows beside them."""
    task = "two_digit: {variants: [two-digit-kmeans], axes: {per_class: [10]}}"
    plan = house(tmp_path, "budget: reduced\nseeds: [0, 1, 2, 3, 4]\ntraining: {epochs: 1}\n", task)
    words = [[words for words in plan.reductions(cell) if "last epoch" in words] for cell in plan.cells]
    assert words == [["the last epoch instead of 5"], []]


def test_rows_at_full_width_are_named_where_others_are_narrower(tmp_path: Path) -> None:
    said = house(
        tmp_path,
        (SHORT % "") + "width: 0.25\n",
        "mnist: {variants: [cnn, capsnet-r1, capsnet-r3], widths: {capsnet-r1: 1, capsnet-r3: 0.5}}",
    )
    words = [word for word in said.task_reductions("mnist") if word.startswith("width")]
    assert words == ["width 1/4 (all but capsnet-r1, capsnet-r3)", "width 1/2 (capsnet-r3)"]
    assert not any(word.startswith("width") for word in said.reductions(said.cells[1]))
