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
    message:
        "Check the data (log: {log})"
    shell:
        "{params.capsbench} --log {log:q} data {params.plan:q} --done {output.record:q}"
