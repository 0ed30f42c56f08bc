rule evaluate:
    input:
        spec=RESULTS / "cells" / "{task}" / "{variant}" / "evaluate-spec.json",
        trained=RESULTS / "cells" / "{task}" / "{variant}" / "trained.json",
    output:
        done=RESULTS / "cells" / "{task}" / "{variant}" / "evaluated.json",
    log:
        RESULTS / "logs" / "evaluate" / "{task}" / "{variant}.log",
    threads: 1
    conda:
        "../../environment.yml"
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    shell:
        "{params.capsbench} evaluate {params.plan} --task {wildcards.task} --variant {wildcards.variant}"
        " --threads {threads} --done {output.done} > {log} 2>&1"
