rule data:
    input:
        spec=RESULTS / "cells" / "data.json",
    output:
        record=RESULTS / "data.json",
    log:
        RESULTS / "logs" / "data.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    shell:
        "{params.capsbench} data {params.plan} --done {output.record} > {log} 2>&1"
