"""benchmarks/same_program.py: what a run on a device does not reach may change, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import script

from capsbench.plan import House
from capsbench.plan.done import evaluation_roots, training_roots

REPOSITORY = Path(__file__).resolve().parents[2]
TREE = {
    "__init__": "",
    "train": """
from capsbench.model import Layer, conv

def step(x):
    return Layer()(conv(x))

def load(source):
    if source.folder is None:
        from capsbench.stand_in import digits

        return digits()
    return source.folder.name
""",
    "stand_in": "def digits():\n    return 9\n",
    "model": """
from capsbench.by_hand import product, why_not
from capsbench.rarely import rare
from capsbench.shared import scaled

REGISTRY = []

def register(f):
    REGISTRY.append(f)
    return f

def conv(x):
    if x.device.type == "cuda":
        return scaled(x)
    return product(x)

@register
def registered(x):
    return x + 1

class Layer:
    def __init__(self):
        self.weight = 5

    def __call__(self, x):
        if x.device.type == "cpu" and why_not(x) is None:
            return self._on_cpu(x)
        if x.small and x.device.type == "cpu":
            return rare(x)
        return getattr(self, "by_name")(x)

    def _on_cpu(self, x):
        return product(x) - 1

    def by_name(self, x):
        return x - 2 if x.device.type != "cpu" else x - 3

    def forward(self, x):
        return x - 4
""",
    "by_hand": """
def product(x):
    return x @ x

def why_not(x):
    return None
""",
    "rarely": "def rare(x):\n    return x @ 5\n",
    "shared": """
def scaled(x):
    return x * 6

def for_the_terminal(x):
    return x * 7

def alone(x):
    return 8
""",
    "cli": "from capsbench.shared import for_the_terminal\nprint(for_the_terminal(1))\n",
}


@pytest.fixture(scope="module")
def tool():
    return script("same_program")


def program(tool, folder: Path, module: str = "", old: str = "", new: str = "", device: str = "cuda"):
    for name, text in TREE.items():
        path = folder / "capsbench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert name != module or old in text
        path.write_text(text.replace(old, new) if name == module else text)
    return tool.Program(folder, ["capsbench.train"], device)


@pytest.mark.parametrize(
    ("module", "old", "new", "same"),
    [
        ("by_hand", "x @ x", "x @ x.T", True),  # behind a return that is certain on a GPU
        ("by_hand", "return None", "return 'no'", True),  # asked of a CPU's tensors alone
        ("model", "product(x) - 1", "product(x) + 1", True),  # a method that nothing else names
        ("model", "x - 3", "x - 33", True),  # the other side of an expression
        ("model", '"cpu" and why_not(x) is None', '"cpu"', True),
        ("shared", "return 8", "return 88", True),  # a function that nothing names
        ("model", "return product(x)\n", "y = product(x)\n    return y\n", True),
        ("model", "from capsbench.by_hand", "# why\nfrom capsbench.by_hand", True),
        ("shared", "x * 6", "x * 66", False),
        ("shared", "x * 7", "x * 77", False),  # named outside of what trains
        ("rarely", "x @ 5", "x @ 55", False),  # its question is not the first of the condition
        ("model", "x - 2", "x - 22", False),
        ("model", "x - 4", "x - 44", False),  # called by torch
        ("model", "x + 1", "x + 11", False),  # a decorator may keep it
        ("model", "REGISTRY = []", "REGISTRY = [1]", False),
        ("model", '"by_name")(x)', '"by_name")(x)\n\n    def _by_name_too(self, x):\n        return x', True),
        ("model", '"cuda"', '"cpu"', False),
        ("by_hand", "def product", "import os\n\nPI = 3\n\ndef product", True),  # importing it does nothing
        ("by_hand", "def product", "print()\n\ndef product", False),  # or something
        ("by_hand", "def product", "import triton\n\ndef product", False),
        ("model", "    return product(x)\n", "    scaled = product\n    return scaled(x)\n", False),  # local then
        ("model", "    return product(x)\n", "    yield product(x)\n", False),  # a generator then
        ("model", "self.weight = 5", "self.weight = 5\n        self.tiled = False", True),  # nothing reads it
        ("model", "self.weight = 5", "self.weight = 5\n        self.small = False", False),
        ("model", "self.weight = 5", "self.weight = 5\n        self.training = False", False),  # torch may
        ("model", "self.weight = 5", "self.weight = 5\n        self.tiled = rare(1)", False),
        ("model", "def _on_cpu", "def on_cpu", False),  # a public name may be called by anyone
        ("model", "def _on_cpu", "def _load_from_state_dict", False),  # as may torch's own
        ("stand_in", "return 9", "return 99", True),  # digits that a run with a folder does not have
        ("train", "source.folder.name", "source.folder.stem", False),
        ("train", "source.folder is None", "source.other is None", False),  # another question
    ],
)
def test_what_counts(tool, tmp_path: Path, module: str, old: str, new: str, same: bool) -> None:
    before, after = program(tool, tmp_path / "before"), program(tool, tmp_path / "after", module, old, new)
    found = list(tool.differences(before.modules, after.modules))
    assert (not found) is same
    if not same:
        assert any(f"capsbench.{module}" in text for text in found)


@pytest.mark.parametrize(
    ("module", "old", "new", "same"),
    [
        ("shared", "x * 6", "x * 66", True),  # for a GPU's tensors alone
        ("model", "x - 2", "x - 22", True),
        ("by_hand", "x @ x", "x @ x.T", False),
        ("by_hand", "return None", "return 'no'", False),
        ("model", "product(x) - 1", "product(x) + 1", False),
        ("stand_in", "return 9", "return 99", True),
    ],
)
def test_what_counts_for_a_run_on_a_cpu(tool, tmp_path: Path, module: str, old: str, new: str, same: bool) -> None:
    before = program(tool, tmp_path / "before", device="cpu")
    after = program(tool, tmp_path / "after", module, old, new, device="cpu")
    assert (not list(tool.differences(before.modules, after.modules))) is same


def test_the_questions_whose_answer_was_taken_are_told(tool, tmp_path: Path) -> None:
    assert program(tool, tmp_path).guards == {
        "capsbench.train: source.folder is None",
        "capsbench.model: x.device.type == 'cuda'",
        "capsbench.model: x.device.type == 'cpu' and why_not(x) is None",
        "capsbench.model: x.device.type != 'cpu'",
    }


def test_of_the_suite_it_keeps_what_a_gpu_runs(tool) -> None:
    cell = House.load(REPOSITORY / "config" / "paper.yaml").cell("mnist", "capsnet-r3-recon")
    training, evaluation = (
        tool.Program(REPOSITORY, roots(cell)).modules for roots in (training_roots, evaluation_roots)
    )
    for name in ("models.capsnet", "models.real_products", "routing.dynamic", "routing.kernels", "training.capture"):
        assert f"capsbench.{name}" in training
    assert "capsbench.evaluation.mnist" in evaluation
    for name in (*training, *evaluation):
        assert not name.startswith("capsbench.routing.cpu_")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["no-such-commit"], "no-such-commit is no commit of this repository."),
        (["HEAD", "--plan", "nothere.yaml"], "nothere.yaml"),
        (["HEAD", "--plan", "/tmp/x.yaml"], "/tmp/x.yaml is not in this repository, whose commits are compared; "),
        (["HEAD", "--to", "config"], "--to is config, a folder; name the file, such as config/same-bits.json."),
        (["HEAD", "--to", "config/paper.yaml"], "--to is config/paper.yaml, a file of another kind "),
    ],
)
def test_a_mistake_is_a_sentence(tool, words: list[str], sentence: str, monkeypatch, capfd) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "argv", ["same_program.py", *words, "--after", "HEAD~0"])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    said = f"{capfd.readouterr().err}{ended.value.code}"  # the latter Python prints, and ends with 1
    assert sentence in said
    assert "Traceback" not in said
