"""Results that nobody trained: a small folder in the format of docs/results-format.md, and ways to spoil it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from toy_compared import AXES, COMPARISONS
from toy_pictures import bent, decoded, glyph, pairs

TASKS = {
    "mnist": ["cnn", "capsnet-r1", "capsnet-r1-recon", "capsnet-r3", "capsnet-r3-recon"],
    "affnist": ["cnn-valid", "cnn-pool", "capsnet-r3-recon"],
    "multimnist": ["multimnist-cnn", "capsnet-r1-recon", "capsnet-r3-recon"],
    "two_digit": ["two-digit-average-mlp", "two-digit-uniform", "two-digit-kmeans"],
}
TITLES = {
    "cnn": "CNN (Table 1)",
    "capsnet-r1": "CapsNet r=1",
    "capsnet-r1-recon": "CapsNet r=1, reconstruction",
    "capsnet-r3": "CapsNet r=3",
    "capsnet-r3-recon": "CapsNet r=3, reconstruction",
    "cnn-valid": "CNN (Table 1) without padding",
    "cnn-pool": "CNN, max-pooling and dropout",
    "multimnist-cnn": "CNN (MultiMNIST)",
    "two-digit-average-mlp": "CNN, average pooling, MLP",
    "two-digit-uniform": "Capsules, uniform couplings",
    "two-digit-kmeans": "Capsules, k-means routing",
}
PLAN_DIGEST, DATA_DIGEST, COST_DIGEST = "a1" * 32, "d5" * 32, "c7" * 32
Frames = dict[str, pd.DataFrame]
Arrays = dict[str, dict[str, np.ndarray]]


def write_toy(folder: Path, seeds: tuple[int, ...] = (0, 1, 2), name: str = "toy", **plan: Any) -> Path:
    """Write plan.json and every run, all done; `plan` replaces keys of plan.json. Returns `folder`."""
    tasks = plan.get("tasks", TASKS)
    runs = [
        {"task": t, "variant": v, "seed": s, "config": config_digest(t, v, s)}
        for t in tasks
        for v in tasks[t]
        for s in seeds
    ]
    described = {
        "schema": 1, "name": name, "file": f"config/{name}.yaml", "digest": PLAN_DIGEST, "budget": "reduced",
        "about": "Toy results that nobody trained, for tests of the report.", "seeds": list(seeds),
        "dataset": {"name": "mnist", "badge": "MNIST", "digest": DATA_DIGEST},
        "reductions": {task: ["width 1/8", f"{len(seeds)} of 5 seeds"] for task in tasks},
        "tasks": tasks, "titles": TITLES, "runs": runs, "cost": COST_DIGEST,
        "comparisons": COMPARISONS if tasks is TASKS else {}, "axes": AXES if tasks is TASKS else {},
    } | plan  # fmt: skip
    write_json(folder / "plan.json", described)
    write_json(folder / "cost.json", cost(tasks))
    for run in runs:
        write_run(folder, run["task"], run["variant"], run["seed"])
    return folder


def cost(tasks: dict[str, list[str]]) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    rows = [
        {
            "task": task, "variant": variant, "image": [28, 28], "parameters": int(rng.integers(10**5, 10**7)),
            "flops": {"inference": 4 * 10**8, "forward": 4 * 10**8, "backward": 8 * 10**8},
            "images_per_second": {"inference": 900 + 9e3 * rng.random(), "forward": 800.0, "backward": 40.25},
            "peak_memory_mb": 512.5, "seconds": {"inference": [0.1], "forward": [0.16], "backward": [3.2]},
        }
        for task in tasks
        for variant in tasks[task]
    ]  # fmt: skip
    return {
        "schema": 1, "digest": COST_DIGEST, "plan": "toy", "device": "cpu", "threads": 2, "precision": "float32",
        "batch": 128, "repetitions": 10, "memory_of": "torch's allocator on the CPU", "started": "2026-11-20T16:00:00Z",
        "versions": {"torch": "2.11.0"}, "machine": {"processor": "AMD EPYC", "gpu": None}, "rows": rows,
    }  # fmt: skip


def config_digest(task: str, variant: str, seed: int) -> str:
    return f"{task}-{variant}-{seed}"


def run_folder(folder: Path, task: str, variant: str, seed: int) -> Path:
    return folder / "runs" / task / variant / f"seed-{seed}"


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def change_json(path: Path, **changes: Any) -> None:
    """Replace top-level keys of a JSON file."""
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | changes)


def fail(folder: Path, task: str, variant: str, seed: int, reason: str = "the loss was not finite at step 40") -> None:
    """The run as training leaves it when its loss is not finite: it has weights, but others than a run that is done."""
    path = run_folder(folder, task, variant, seed) / "manifest.json"
    run = {"task": task, "variant": variant, "seed": seed}
    change_json(path, status="failed", reason=reason, final_loss=None, weights=weights(run | {"reason": reason}))


def unmatch(folder: Path, variant: str, seed: int) -> None:
    """The affNIST run as evaluation leaves it when it never reached the held-out accuracy."""
    path = run_folder(folder, "affnist", variant, seed) / "matched" / "metrics.json"
    change_json(path, status="not matched", reason="held-out accuracy never reached 95 %", metrics={})


def truncate(path: Path) -> None:
    """Keep the first half of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def copy_run(folder: Path, task: str, variant: str, seed: int, to: int, claim: bool) -> None:
    """Copy a run's folder to another seed's; `claim`: and let its manifest say that it is that seed's."""
    place = run_folder(folder, task, variant, to)
    shutil.copytree(run_folder(folder, task, variant, seed), place, dirs_exist_ok=True)
    if claim:
        run = {"task": task, "variant": variant, "seed": to}
        change_json(place / "manifest.json", run=run)
        for path in place.glob("*/metrics.json"):
            change_json(path, run=run)


def weights(run: dict[str, Any]) -> str:
    """The digest of a run's weights: no two runs have the same."""
    return hashlib.sha256(json.dumps(run).encode()).hexdigest()


def write_run(folder: Path, task: str, variant: str, seed: int) -> None:
    """One finished run with everything that training and evaluation leave."""
    rng = np.random.default_rng([seed, *variant.encode(), *task.encode()])
    run, place = {"task": task, "variant": variant, "seed": seed}, run_folder(folder, task, variant, seed)
    steps = np.arange(20, 961, 20)
    loss = (0.8 if "cnn" in variant else 0.5) * np.exp(-steps / 250) + 0.02 * rng.gamma(4, 0.25, len(steps))
    place.mkdir(parents=True)
    history = pd.DataFrame(
        {"step": steps, "epoch": steps / 469, "loss": loss, "margin": loss, "reconstruction": np.nan}
    )
    history.assign(rate=1e-3, images_per_second=4000.0).to_csv(place / "history.csv", index=False)
    write_json(place / "manifest.json", manifest(run, float(loss[-1]), rng))
    if task == "affnist":
        t = np.arange(1, 21)
        held_out = 1 - 0.3 * np.exp(-t / 3) - 0.02 - 0.004 * rng.random(20)
        affine = held_out - (0.14 if "caps" in variant else 0.24) + 0.01 * rng.random(20)
        columns = {"step": 48 * t, "held_out_accuracy": held_out, "affnist_accuracy": affine}
        pd.DataFrame(columns).to_csv(place / "curve.csv", index=False)
    if task == "two_digit":
        epochs = np.arange(1, 6)
        columns = {"step": 192 * epochs, "epoch": epochs}
        for condition in ("56x28", "28x56"):
            for metric in ("top2_accuracy", "both_above_half_accuracy"):
                columns[f"{condition}.{metric}"] = np.clip(0.5 + 0.1 * epochs / 2 + 0.1 * rng.standard_normal(5), 0, 1)
        pd.DataFrame(columns).to_csv(place / "curve.csv", index=False)
    for condition, (images, metrics, frames, arrays) in CONDITIONS[task](variant, rng).items():
        dataset = (
            {"name": "affnist-synth", "badge": "affnist-synth"}
            if task == "affnist"
            else {"name": "mnist", "badge": "MNIST"}
        )
        shown = {key: {"value": float(value), "unit": unit} for key, (value, unit) in metrics.items()}
        write_json(
            place / condition / "metrics.json",
            {"schema": 1, "run": run, "condition": condition, "status": "done", "reason": None, "dataset": dataset,
             "images": images, "digest": "e" * 64, "weights": weights(run), "seconds": 3.1, "metrics": shown},
        )  # fmt: skip
        for stem, frame in frames.items():
            frame.to_csv(place / condition / f"{stem}.csv", index=False)
        for stem, pictures in arrays.items():
            np.savez_compressed(place / condition / f"{stem}.npz", **pictures)


def spec(variant: str) -> dict[str, str]:
    """What a manifest says of a variant's model, as far as the report asks."""
    if variant.startswith("two-digit"):
        return {"model": "two-digit", "head": "pool" if "average" in variant else "capsules", "train_on": "task"}
    return {"model": "cnn" if "cnn" in variant else "capsnet", "train_on": "task"}


def manifest(run: dict[str, Any], loss: float, rng: np.random.Generator) -> dict[str, Any]:
    return {
        "schema": 1, "run": run, "status": "done", "reason": None, "digest": "b" * 64,
        "digests": {
            "config": config_digest(**run), "training_source": "c" * 64, "data": DATA_DIGEST, "plan": PLAN_DIGEST,
        },
        "config": {"variant": spec(run["variant"]), "training": {"batch": 128}, "task": {}, "dataset": "mnist"},
        "resolved": {"precision": "float32", "precision_timings": {"float32": 0.07}, "threads": 1, "device": "cpu"},
        "dataset": {"name": "mnist", "badge": "MNIST"}, "reductions": ["width 1/8"], "parameters": 123456, "steps": 960,
        "final_loss": loss, "seconds": 40 + 5 * float(rng.random()), "peak_memory_mb": 812.0,
        "started": "2026-11-20T16:00:00Z", "finished": "2026-11-20T16:00:41Z", "resumed": 0, "weights": weights(run),
        "versions": {"capsbench": "0.1.0", "python": "3.11.7", "torch": "2.11.0", "numpy": "2.3.0"},
        "machine": {"processor": "AMD EPYC", "cores": 2, "gpu": None, "driver": None, "cuda": None, "system": "Linux"},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    }  # fmt: skip


WRONG = [(14, 9), (27, 1), (33, 8)]  # test image, answer: a CNN is wrong thrice, a CapsNet twice


def mnist(variant: str, rng: np.random.Generator) -> dict[str, Any]:
    error = {"cnn": 2.4, "capsnet-r1": 2.1, "capsnet-r1-recon": 1.9, "capsnet-r3": 2.0}.get(variant, 1.7)
    error += 0.15 * rng.standard_normal()
    metrics = {"error": (error, "%"), "correct": (round(10_000 - 100 * error), "images")}
    labels = (np.arange(40) % 10).astype(np.uint8)
    predicted, margin = labels.copy(), np.ones(40, np.float16)
    for image, answer in WRONG[: 3 if "cnn" in variant else 2]:
        predicted[image], margin[image] = answer, -0.5 - 0.1 * rng.random()
    arrays: Arrays = {"predictions": {"labels": labels, "predicted": predicted, "margin": margin}}
    shown = [image for image, _ in WRONG]
    pictures = np.stack([glyph(int(labels[image])) for image in shown])
    arrays["hardest"] = {"indices": np.array(shown, dtype=np.uint16), "images": pictures}
    if variant.endswith("recon"):
        arrays["reconstructions"] = decoded(rng, 28)
        offsets = np.linspace(-0.25, 0.25, 11)
        grid = np.stack([[[bent(d, k, o) for o in offsets] for k in range(16)] for d in (3, 5, 8)])
        arrays["perturbations"] = {"grid": grid, "labels": np.array([3, 5, 8], dtype=np.uint8), "offsets": offsets}
    columns = ["confidence_low", "confidence_high", "images", "confidence", "accuracy"]
    rows = [(8 / 15, 0.6, 5, 0.57, 0.2), (0.6, 2 / 3, 600, 0.63, 0.5), (14 / 15, 1.0, 9395, 0.96, 0.99)]
    conditions = {"test": (10_000, metrics, {"reliability": pd.DataFrame(rows, columns=columns)}, arrays)}
    moved = [("none", 0.0, 2.0), ("fgsm", 0.1, 30.0), ("pgd", 0.1, 60.0), ("fgsm", 0.3, 90.0), ("pgd", 0.3, 100.0)]
    attacks = pd.DataFrame([(*row, 100) for row in moved], columns=["attack", "epsilon", "error", "images"])
    conditions["attacked"] = (100, {"pgd_error_e10": (60.0, "%")}, {"attacks": attacks}, {})
    if variant.startswith("capsnet"):
        conditions["routing"] = (2_000, *routing(3 if "r3" in variant else 1, error, rng), {})
    return conditions


def routing(own: int, error: float, rng: np.random.Generator) -> tuple[dict[str, tuple[float, str]], Frames]:
    """Couplings that harden along the passes."""
    passes = np.array([1, 2, 3, 5, 10, 30, 100])
    entropy = np.exp(-((passes - 1) / 40)) + 0.001 * rng.random(len(passes))
    columns = {
        "iterations": passes, "trained": (passes == own).astype(int), "error": error + 0.02 * passes,
        "flips": 0.1 * abs(passes - own), "entropy": entropy, "hard": 100 * (1 - entropy), "spread": (1 - entropy) / 10,
        "energy": 3 - 2 * entropy,
    }  # fmt: skip
    metrics = {
        "coupling_entropy": (entropy[passes == own].item(), ""), "hard_fraction": (0.1 * rng.random(), "%"),
        "mutual_information": (0.4 + 0.1 * rng.random(), "bits"), "dead_capsules": (rng.random(), "%"),
        **{f"flips_r{r}": (0.1 * abs(r - own), "%") for r in (1, 10, 100)},
    }  # fmt: skip
    logits = {"iteration": np.arange(2, 101), "change": 0.1 * np.exp(-np.arange(2, 101) / 12)}
    return metrics, {"iterations": pd.DataFrame(columns), "logits": pd.DataFrame(logits)}


def affnist(variant: str, rng: np.random.Generator) -> dict[str, Any]:
    base = 78.0 if "caps" in variant else 66.0
    rows = []
    grids = {"rotation": (-20, 20), "shear": (-0.2, 0.2), "scale": (0.8, 1.2), "translation": (-6, 6)}
    for factor, (low, high) in grids.items():
        for value in np.linspace(low, high, 7):
            bend = abs(value - (low + high) / 2) / (high - low) * 2
            rows.append((factor, value, (base + 20 - 30 * bend**2 + rng.standard_normal()) / 100, 500))
    frames = {"factors": pd.DataFrame(rows, columns=["factor", "value", "accuracy", "images"])}
    pictures: Arrays = {"reconstructions": decoded(rng, 40)} if "caps" in variant else {}
    matched = {"accuracy": (base + rng.standard_normal(), "%"), "held_out_accuracy": (95.0, "%")}
    converged = {"accuracy": (base + 4 + rng.standard_normal(), "%"), "held_out_accuracy": (97.5, "%")}
    labels, bases = np.arange(40, dtype=np.uint8) % 10, np.arange(40, dtype=np.uint16)
    pictures["predictions"] = {"labels": labels, "predicted": np.where(bases < 36, labels, np.uint8(9)), "bases": bases}
    return {"matched": (320_000, matched, {}, {}), "converged": (320_000, converged, frames, pictures)}


def multimnist(variant: str, rng: np.random.Generator) -> dict[str, Any]:
    error = 9.0 if "cnn" in variant else 6.5
    metrics = {"error": (error + 0.3 * rng.standard_normal(), "%"), "half_credit_error": (error / 2, "%")}
    rows = []
    for k in range(5):
        rows.append((0.2 * k, 0.2 * k + 0.2, 400, "error", error * (0.5 + 0.3 * k)))
        if "caps" in variant:
            rows.append((0.2 * k, 0.2 * k + 0.2, 60, "ssim_true", 0.85 - 0.06 * k + 0.01 * rng.random()))
    frames = {"overlap": pd.DataFrame(rows, columns=["overlap_low", "overlap_high", "pairs", "metric", "value"])}
    arrays: Arrays = {}
    if "caps" in variant:
        drawn = {"mse": (0.02, ""), "psnr": (18.0, "dB"), "ssim": (0.72, ""), "dice": (0.81, ""), "iou": (0.7, "")}
        for name, (value, unit) in drawn.items():
            metrics[f"{name}_true"] = (value * (1 + 0.02 * rng.standard_normal()), unit)
            metrics[f"baseline_{name}"] = (value * 0.8, unit)
        arrays["segmentation"] = pairs(rng)
    return {"test": (2_000, metrics, frames, arrays)}


def two_digit(variant: str, rng: np.random.Generator) -> dict[str, Any]:
    base = {"two-digit-average-mlp": 41.0, "two-digit-uniform": 85.0}.get(variant, 93.0)
    return {
        condition: (
            10_000,
            {
                "top2_accuracy": (base - fall + 2 * rng.standard_normal(), "%"),
                "both_above_half_accuracy": (
                    base * (0.3 if base < 50 else 0.98) - fall + 2 * rng.standard_normal(),
                    "%",
                ),
                "final_exact_above_half_accuracy": (base / 4 + rng.standard_normal(), "%"),
            },
            {},
            {},
        )
        for condition, fall in (("56x28", 0), ("28x56", 2))
    }


CONDITIONS = {"mnist": mnist, "affnist": affnist, "multimnist": multimnist, "two_digit": two_digit}
