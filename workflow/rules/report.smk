rule report:
    input:
        spec=RESULTS / "cells" / "report.json",
        evaluated=evaluated_cells,
    output:
        html=report(
            RESULTS / "report.html",
            category="Report",
            caption="../report/report.rst",
        ),
        done=RESULTS / "cells" / "reported.json",
    log:
        RESULTS / "logs" / "report.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        capsbench=CAPSBENCH,
        plan=PLAN,
    shell:
        "{params.capsbench} report {params.plan} --done {output.done} > {log} 2>&1"
