# Time is measured by one job that shares the machine with no other.
rule cost:
    input:
        spec=RESULTS / "cells" / "cost-spec.json",
    output:
        done=RESULTS / "cells" / "measured.json",
    log:
        RESULTS / "logs" / "cost.log",
    priority: BEFORE_CELLS
    conda:
        "../../environment.yml"
    threads: max(workflow.cores or 1, 1)
    resources:
        gpu=1,
        mem_mb=memory,
        runtime=evaluation_minutes,
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    message:
        "Measure what each variant costs (log: {log})"
    shell:
        "{params.capsbench} --log {log:q} cost {params.plan:q} --threads {threads} --done {output.done:q}"
