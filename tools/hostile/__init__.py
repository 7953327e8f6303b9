"""Structured hostile files: each is well formed enough to be believed, and wrong where it hurts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def mostly(dice: random.Random, common: Sequence[T], seldom: Sequence[T], often: float = 0.95) -> T:
    """One of the common values, now and then one of those that take long to make and to read."""
    return dice.choice(common if dice.random() < often else seldom)
