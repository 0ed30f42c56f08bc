"""Evaluation: one file a task; weights in, predictions and metrics out."""
