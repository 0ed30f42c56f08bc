rule evaluate:
    input:
        spec=RESULTS / "cells" / "{task}" / "{variant}" / "evaluate-spec.json",
        trained=RESULTS / "cells" / "{task}" / "{variant}" / "trained.json",
    output:
        done=RESULTS / "cells" / "{task}" / "{variant}" / "evaluated.json",
    log:
        RESULTS / "logs" / "evaluate" / "{task}" / "{variant}.log",
    priority: BEFORE_CELLS
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        gpu=1,
        mem_mb=memory,
        runtime=evaluation_minutes,
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    message:
        "Evaluate {wildcards.task}/{wildcards.variant} (log: {log})"
    shell:
        "{params.capsbench} --log {log:q} evaluate {params.plan:q} --task {wildcards.task} --variant {wildcards.variant}"
        " --threads {threads} --done {output.done:q}"
