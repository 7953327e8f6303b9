"""What is done about a failure on the way: written down before it is done."""

from __future__ import annotations

import msgspec


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done: `jobs` at a time, `variables` in the environment, `patches` in the source, or just again."""

    id: str
    cause: str
    step: str
    text: str
    jobs: int | None = None
    variables: dict[str, str] = {}
    patches: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line: the sentence, and what exactly."""
        exact = [f"{self.jobs} at a time"] if self.jobs else []
        exact += [f"{name}={value}" for name, value in self.variables.items()]
        exact += list(self.patches)
        return self.text + (f" ({', '.join(exact)})" if exact else "")
