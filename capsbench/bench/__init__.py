"""How fast: training and inference against named references, in one process."""
