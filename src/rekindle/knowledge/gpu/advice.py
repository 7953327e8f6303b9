"""Five lines for the owner of a card: how to use it, whatever PyTorch is installed."""

from __future__ import annotations

from rekindle.knowledge.gpu.capability import Capability
from rekindle.knowledge.tables import Row, cached, decided


class CardAdvice(Row, frozen=True, kw_only=True):
    """For the cards from capability `first` to `last`. `instead`: what to take where PyTorch is the wrong answer."""

    id: str
    first: Capability
    last: Capability
    type: str
    attention: str
    bf16: str
    benchmark: str
    apps: str
    instead: str | None = None

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and text, in the order they are shown."""
        rows = [
            ("compute in", self.type),
            ("attention", self.attention),
            ("bfloat16", self.bf16),
            ("cuDNN", self.benchmark),
            ("applications", self.apps),
        ]
        return (*rows, ("not PyTorch", self.instead)) if self.instead else tuple(rows)


@cached
def advice(capability: Capability) -> CardAdvice | None:
    """None: a card that no PyTorch runs on, or one newer than the data."""
    rows = decided("advice", dict[str, tuple[CardAdvice, ...]])["advice"]
    return next((row for row in rows if row.first <= capability <= row.last), None)
