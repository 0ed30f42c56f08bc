# Snakemake removes what it finds of these before the job. `update()` would keep it, but the backups that it makes in the
# place of that stop every later Snakemake where one was killed; what is lost here is drawn again in seconds. A
# report that a killed Snakemake left behind is waited for before any job (`begin`); a user's own at this moment is not.
rule report:
    input:
        spec=RESULTS / "cells" / "report.json",
        evaluated=evaluated_cells,
        cost=measured_cost,
    output:
        html=report(
            RESULTS / "report.html",
            category="Report",
            caption="../report/report.rst",
            labels={"what": "everything on one page"},
        ),
        tables=report(
            directory(RESULTS / "tables"),
            patterns=["{table}.csv"],
            category="Tables",
            caption="../report/tables.rst",
            labels={"table": "{table}"},
        ),
        figures=report(
            directory(RESULTS / "figures"),
            patterns=["{figure}.png"],
            category="Figures",
            caption="../report/figures.rst",
            labels={"figure": "{figure}"},
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
    message:
        "Draw tables, figures and the report (log: {log})"
    shell:
        "{params.capsbench} --log {log:q} report {params.plan:q} --done {output.done:q}"
