"""Memory that does not suffice outside training, as a sentence. Training names the batch that fits itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from capsbench.errors import ResourceError


@contextmanager
def says_what_to_lower(where: str, remedy: str) -> Iterator[None]:
    """Within: where memory does not suffice, `where`: out of memory; `remedy`. Raises ResourceError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_of_memory(error):
            raise
        raise ResourceError(f"{where}: out of memory; {remedy}.") from error


def _is_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Whether Python, NumPy or torch failed for want of memory; torch is not imported to find out."""
    if isinstance(error, MemoryError):
        return True
    if "torch" not in sys.modules:
        return False
    from capsbench.training.memory import is_out_of_memory

    return is_out_of_memory(error)
