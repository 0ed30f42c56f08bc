"""Report: collecting, statistics, tables, figures, report.html. It reads files only; no torch, no models."""

from capsbench.report.build import Report, build_report, format_tables_for_terminal

__all__ = ["Report", "build_report", "format_tables_for_terminal"]
