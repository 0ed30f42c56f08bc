"""`python -m snakemake`, but for a Ctrl-C that comes before its first job: an exit code, and no traceback.

Snakemake answers Ctrl-C once it has jobs to stop. Until then it loads itself and reads the Snakefile, for seconds.
"""

from __future__ import annotations

import sys

from capsbench.errors import STOPPED


def start() -> None:
    """Run Snakemake on the words of this command line; raises SystemExit."""
    try:
        from snakemake.cli import main

        main()
    except KeyboardInterrupt:
        sys.exit(STOPPED)


if __name__ == "__main__":
    start()
