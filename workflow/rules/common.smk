# The plan as files. Parses without torch; what is stale is decided in capsbench.pipeline.
import sys

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

from capsbench.errors import CapsbenchError
from capsbench.pipeline import Pipeline

try:
    PIPELINE = Pipeline.from_snakemake(
        workflow.overwrite_configfiles, config, workflow.is_main_process
    )
except CapsbenchError as error:
    raise WorkflowError(str(error)) from None

PLAN = PIPELINE.house.path
RESULTS = PIPELINE.house.folder
# with --sdm conda the job's own environment has the libraries; the package itself is this clone
CAPSBENCH = (
    f"PYTHONPATH={workflow.basedir} python -m capsbench"
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    else f"{sys.executable} -m capsbench"
)


wildcard_constraints:
    task="|".join(sorted({cell.task for cell in PIPELINE.house.cells})),


def targets():
    return [RESULTS / "report.html", RESULTS / "cells" / "reported.json"]


def evaluated_cells(wildcards):
    return [PIPELINE.specs(cell) / "evaluated.json" for cell in PIPELINE.house.cells]
