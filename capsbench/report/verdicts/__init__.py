"""Judge every claim of config/claims.yaml by the runs of a results folder, with the rule that the file wrote down."""

from capsbench.report.verdicts.judge import judge
from capsbench.report.verdicts.judged import Judged, Judgement

__all__ = ["Judged", "Judgement", "judge"]
