# The plan as files. Parses without torch; what is stale is decided in capsbench.pipeline.
import shlex
import sys

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

from capsbench.errors import CapsbenchError
from capsbench.pipeline import Pipeline
from capsbench.signals import answer_sigterm_at_any_moment

answer_sigterm_at_any_moment()

try:
    PIPELINE = Pipeline.from_snakemake(
        workflow.overwrite_configfiles,
        workflow.config_settings.config,
        workflow.is_main_process,
    )
except CapsbenchError as error:
    raise WorkflowError(str(error)) from None

PLAN = PIPELINE.house.path
RESULTS = PIPELINE.house.folder
# Jobs run the package of this clone, whatever is installed. With --sdm conda their own environment has the libraries.
PYTHON = (
    "python"
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    else shlex.quote(sys.executable)
)
CLONE = shlex.quote(str(workflow.basedir))
# `exec`: a batch system's SIGTERM reaches bash as well; one that stayed would die of it, and the job with it, unsaved.
CAPSBENCH = (
    f"PYTHONPATH={CLONE}${{PYTHONPATH:+:$PYTHONPATH}} exec {PYTHON} -m capsbench"
)


wildcard_constraints:
    task="|".join(sorted({cell.task for cell in PIPELINE.house.cells})),


onstart:
    PIPELINE.begin()


# Cells are made in the order of `capsbench plan`, each evaluated before more is trained: a machine that is lent for some
# hours leaves whole rows, the first ones. Snakemake takes whatever adds up to the most; without this, an order of its own.
CELLS = [f"{cell.task}/{cell.folder_name}" for cell in PIPELINE.house.cells]
BEFORE_CELLS = len(CELLS) ** 2


def place_in_plan(wildcards):
    return len(CELLS) - CELLS.index(f"{wildcards.task}/{wildcards.variant}")


def targets():
    return [RESULTS / "report.html", RESULTS / "cells" / "reported.json"]


def evaluated_cells(wildcards):
    return PIPELINE.evaluated()


def measured_cost(wildcards):
    return [RESULTS / "cells" / "measured.json"] if PIPELINE.house.plan.cost else []


# What a batch system is asked for. A job that is tried again gets more memory. Training asks for no more time: it goes on
# from its checkpoint, and many partitions start nothing that asks for over half a day. A run on one machine is limited by
# none of these unless it says --resources.
def memory(wildcards, attempt):
    return 8000 * attempt


TRAINING_MINUTES = 720


def evaluation_minutes(wildcards, attempt):
    return min(240 * attempt, TRAINING_MINUTES)


def tuning_of(wildcards):
    """What a tuned row waits for; other rows wait for nothing."""
    tuned = {cell.label for cell in PIPELINE.house.cells if cell.tuned is not None}
    if f"{wildcards.task}/{wildcards.variant}" not in tuned:
        return []
    return RESULTS / "cells" / wildcards.task / wildcards.variant / "tuned.json"
