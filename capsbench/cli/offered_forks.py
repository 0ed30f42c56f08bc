"""`capsbench run` lets Snakemake's jobs be forks of one process, which loads their libraries once (capsbench.forks)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from capsbench.errors import CapsbenchError
from capsbench.forks import ADDRESS
from capsbench.provenance import PACKAGE

LONGEST = 100  # bytes of a socket's path; the kernel has room for some more
LEAVES = 3  # seconds that the server is given to end; it stays where a killed Snakemake left jobs to it


@contextlib.contextmanager
def forks_offered(wanted: bool) -> Iterator[dict[str, str]]:
    """The environment for a Snakemake: within, it names a server of forks.

    It names none where none is wanted or there can be none: every job then begins by itself. Raises CapsbenchError
    where CAPSBENCH_FORKS is neither `on` nor `off`, nor another server's address, as in a job.
    """
    said = os.environ.get(ADDRESS) or "on"
    if said not in ("on", "off") and not said.startswith("/"):
        raise CapsbenchError(f"{ADDRESS} is {said!r}; it takes `on` and `off` (every job loads its libraries itself).")
    environment = {name: value for name, value in os.environ.items() if name != ADDRESS}
    if not wanted or said == "off" or sys.platform != "linux":
        yield environment
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="capsbench-", ignore_cleanup_errors=True))
        except OSError:  # no room, or no place to write
            yield environment
            return
        address = str(Path(folder) / "forks")
        if len(os.fsencode(address)) <= LONGEST:
            with contextlib.suppress(OSError):  # no more processes
                stack.enter_context(_server(address))
                environment[ADDRESS] = address
        yield environment


@contextlib.contextmanager
def _server(address: str) -> Iterator[None]:
    """Within: a server at this address, in a session of its own, which a terminal's signals do not reach."""
    path = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))  # as a job's
    server = subprocess.Popen(
        [sys.executable, "-m", "capsbench.fork_server", address],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert server.stdin is not None
        server.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(LEAVES)
