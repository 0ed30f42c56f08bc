# One job makes the trials of a tuned row and stores what they choose; trials that are done are left alone.
rule tune:
    input:
        spec=RESULTS / "cells" / "{task}" / "{variant}" / "tune-spec.json",
        data=RESULTS / "data.json",
    output:
        done=RESULTS / "cells" / "{task}" / "{variant}" / "tuned.json",
    log:
        RESULTS / "logs" / "tune" / "{task}" / "{variant}.log",
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
        "Tune {wildcards.task}/{wildcards.variant} (log: {log})"
    shell:
        "{params.capsbench} --log {log:q} tune {params.plan:q} --task {wildcards.task} --variant {wildcards.variant}"
        " --threads {threads} --done {output.done:q}"
