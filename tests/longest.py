"""The longest test files, which come first: the short ones then fill up the end, where otherwise one worker waits.

xdist's own order is by the number of tests, and a file of one long test comes last; the Makefile says
--no-loadscope-reorder. `finished` of the workflows' conftest.py takes both workers: not both begin with a file of it.
"""

from __future__ import annotations

LONGEST = (
    "test_workflow_smoke.py",
    "test_learning.py",
    "test_workflow_faults.py",
    "test_workflow_disks.py",
    "test_run.py",
    "test_workflow_kills.py",
    "test_slurm.py",
    "test_faults.py",
    "test_routing_fused.py",
    "test_workflow_edits.py",
    "test_workflow_tiny.py",
    "test_together.py",
    "test_forks.py",
    "test_transforms.py",
    "test_malformed_count.py",
    "test_workflow_travel.py",
    "test_workflow_tuning.py",
    "test_offered_forks.py",
    "test_workflow_carried.py",
    "test_report_mnist_page.py",
    "test_cli_verify.py",
    "test_cli_commands.py",
    "test_workflow_packs.py",
    "test_cli_inputs.py",
    "test_capture.py",
    "test_no_waiting.py",
    "test_same_bits_stored.py",
    "test_workflow_parse.py",
    "test_custom_routing.py",
    "test_probe_runs.py",
    "test_workflow_cost.py",
    "test_report_crossed.py",
    "test_workflow_profiles.py",
    "test_cli_mistakes.py",
    "test_workflow_data.py",
    "test_attacks.py",
    "test_malformed_results.py",
    "test_malformed_plans.py",
    "test_source_processes.py",
    "test_report_cost.py",
    "test_report_figures.py",
    "test_routing_cpu_fused.py",
    "test_tune.py",
    "test_experiments.py",
)


def rank(name: str) -> int:
    """Where a file comes, by its name: equal for all that are not among the longest."""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
