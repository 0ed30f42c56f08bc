"""Minutes that a command is given: what can save itself is stopped in time, what would take longer is not begun."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType

from capsbench.errors import ResourceError
from capsbench.locks import waits_for


class Deadline:
    """A time at which what can save itself is stopped and nothing new begun; an evaluation that cannot is let finish.

    Args:
        minutes: from now; None is never.
    """

    def __init__(self, minutes: float | None) -> None:
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return self.end is not None and time.monotonic() >= self.end

    def why_no_time_for(self, seconds: float | None) -> str | None:
        """Why work of so many seconds would not end before the deadline; None where it would, or nobody knows."""
        if self.end is None or seconds is None or (left := self.end - time.monotonic()) >= seconds:
            return None
        return (
            f"since it would take {seconds / 60:.1f} minutes, by its row's other seeds, and the machine is lent for "
            f"only {max(left, 0) / 60:.1f} more"
        )

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Within: at the deadline this process gets SIGTERM, at which whatever can save itself does and stops."""
        if self.end is None:
            yield
            return
        before = signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.monotonic(), 0.001), 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @staticmethod
    def _stop(_: int, __: FrameType | None) -> None:
        if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN):  # a handler that saves is there
            signal.raise_signal(signal.SIGTERM)
        elif (other := waits_for()) is not None:
            raise ResourceError(f"time was up while waiting for {other}")
