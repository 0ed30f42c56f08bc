"""What the toy plan compares, as plan.json has it."""

from __future__ import annotations

RECON = {"factor": "reconstruction", "value": "none", "reference": "paper"}
ROUTING = {"factor": "routing", "value": "kmeans", "reference": "dynamic"}
OWN = {"factor": "squash", "value": "half", "reference": "hinton", "own": True}
MODEL = {"factor": "model", "value": "cnn", "reference": "capsnet"}
LOSS = {"factor": "loss", "value": "cross-entropy", "reference": "margin"}
COMPARISONS = {
    "ablation": {
        "mnist": [
            {"variant": "capsnet-r3", "reference": "capsnet-r3-recon", "differs": [RECON]},
            {"variant": "cnn", "reference": "capsnet-r3-recon", "differs": [MODEL, LOSS]},
        ],
        "affnist": [{"variant": "cnn-pool", "reference": "capsnet-r3-recon", "differs": [MODEL]}],
    },
    "ladder": {
        "mnist": [
            {"variant": "cnn", "reference": None, "differs": []},
            {"variant": "capsnet-r1", "reference": "cnn", "differs": [MODEL]},
            {"variant": "capsnet-r3", "reference": "capsnet-r1", "differs": [ROUTING, OWN]},
        ],
        "two_digit": [
            {"variant": "two-digit-average-mlp", "reference": None, "differs": []},
            {"variant": "two-digit-kmeans", "reference": "two-digit-average-mlp", "differs": [MODEL]},
        ],
    },
}
AXES = {  # as if the one had been made of the other
    "mnist": [
        {"axis": "iterations", "variant": "capsnet-r1", "base": "capsnet-r3", "value": 1},
        {"axis": "iterations", "variant": "capsnet-r3", "base": "capsnet-r3", "value": 3},
    ],
}
