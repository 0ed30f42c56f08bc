"""What the command lines of the scripts here take."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """A type for argparse: a whole number that is not less. What else is given is said in a sentence."""

    def number(word: str) -> int:
        if not word.isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"{word} is not a whole number of at least {least}.")
        return int(word)

    return number
