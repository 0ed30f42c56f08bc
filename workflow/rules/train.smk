# One job trains the seeds of a cell; runs that are done are left alone, stopped ones go on from their checkpoint.
# It evaluates what it trained while torch and the data are in memory; the job `evaluate` then finds that done.
rule train:
    input:
        spec=RESULTS / "cells" / "{task}" / "{variant}" / "train-spec.json",
        data=RESULTS / "data.json",
        tuned=tuning_of,
    output:
        done=RESULTS / "cells" / "{task}" / "{variant}" / "trained.json",
    log:
        RESULTS / "logs" / "train" / "{task}" / "{variant}.log",
    priority: place_in_plan
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        gpu=1,
        mem_mb=memory,
        runtime=TRAINING_MINUTES,
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    message:
        "Train {wildcards.task}/{wildcards.variant} (log: {log})"
    shell:
        "{params.capsbench} --log {log:q} train {params.plan:q} --task {wildcards.task} --variant {wildcards.variant}"
        " --threads {threads} --evaluate --done {output.done:q}"
