# One job trains the seeds of a cell; runs that are done are left alone, stopped ones go on from their checkpoint.
rule train:
    input:
        spec=RESULTS / "cells" / "{task}" / "{variant}" / "train-spec.json",
        data=RESULTS / "data.json",
    output:
        done=RESULTS / "cells" / "{task}" / "{variant}" / "trained.json",
    log:
        RESULTS / "logs" / "train" / "{task}" / "{variant}.log",
    threads: 1
    conda:
        "../../environment.yml"
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    shell:
        "{params.capsbench} train {params.plan} --task {wildcards.task} --variant {wildcards.variant}"
        " --threads {threads} --done {output.done} > {log} 2>&1"
