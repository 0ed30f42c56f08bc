"""Plans, variants, tasks and runs. Nothing here imports torch: Snakemake parses with it."""

from capsbench.plan.load import config_folder, load_variants
from capsbench.plan.runs import Cell, House, results_root

__all__ = ["Cell", "House", "config_folder", "load_variants", "results_root"]
