"""Training: losses, schedule, precision, checkpoints, the loop."""
