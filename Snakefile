# capsbench: plan -> data -> tune -> train -> evaluate -> tables, figures, report.
#   snakemake                                     config/quick.yaml
#   snakemake --configfile config/paper.yaml      the paper's plan
from snakemake.utils import min_version

min_version("9.20")


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/cost.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        targets(),
