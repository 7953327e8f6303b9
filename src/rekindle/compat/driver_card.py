"""Which drivers drive a card: from the one that first knew it to the last branch that still does."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from rekindle.compat import driver_cuda
from rekindle.compat.driver_cuda import DriverNeed, spelled
from rekindle.compat.feature_card import has
from rekindle.compat.judgement import Alternative, Clash, Fits, Judgement
from rekindle.core.version import Version
from rekindle.knowledge.cuda import toolkits
from rekindle.knowledge.gpu import capabilities
from rekindle.knowledge.gpu.drivers import branch_of, listed_from
from rekindle.knowledge.tables import cached
from rekindle.model.card import Capability, NamedCard
from rekindle.model.driver import Driver

ABSENT = "no NVIDIA driver is running"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The drivers that drive a set of cards: from `first` (None: any old one) to branch `last` (None: not ended)."""

    first: Version | None
    last: int | None
    source: str

    @property
    def empty(self) -> bool:
        return self.first is not None and self.last is not None and branch_of(self.first) > self.last

    def is_before(self, driver: Version) -> bool:
        return self.first is not None and driver < self.first

    def is_after(self, driver: Version) -> bool:
        return self.last is not None and branch_of(driver) > self.last

    def words(self, wanted: DriverNeed, *, jit: bool = False) -> str:
        """The driver that a CUDA needs on these cards, in one plain line: `R470 (450.80.02 or newer)`."""
        least = wanted.full if jit else wanted.floor
        least = max(least, self.first) if self.first else least
        if self.last is None:
            return f"{spelled(least)} or newer"
        if branch_of(least) == self.last:
            return f"R{self.last} ({least} or newer)" if "." in least.text else f"R{self.last}"
        return f"{spelled(least)} or newer, up to R{self.last}"


@cached
def window(capability: Capability, counting: str, *, last_branch: str | None = None) -> Window:
    """Drivers know it from the CUDA release on that first compiled for it: no list of first drivers is complete."""
    facts = capabilities.facts(capability)
    first = toolkits.first_toolkit_for(capability)
    since = facts.first_cuda if facts else None
    # The tables of toolkits begin at 9.0: a card older than that has no lower end that matters here.
    known_since = first if first and since and first.version == since.major_minor else None
    wanted = driver_cuda.need(known_since.version, counting) if known_since else None
    least = wanted.full if isinstance(wanted, DriverNeed) else None
    named = facts.first_driver_linux if facts and counting == "linux" else None
    last = last_branch or (facts.last_driver_branch if facts else None)
    return Window(
        first=min(least, named) if least and named else least,
        last=int(last) if last else None,
        source=facts.source if facts else "",
    )


def common(windows: Sequence[Window]) -> Window:
    """The drivers that drive all of these cards; `empty` when there are none."""
    firsts = [each.first for each in windows if each.first is not None]
    lasts = [each.last for each in windows if each.last is not None]
    return Window(
        first=max(firsts) if firsts else None,
        last=min(lasts) if lasts else None,
        source="; ".join(dict.fromkeys(each.source for each in windows if each.source)),
    )


def share_modules(cards: Sequence[NamedCard]) -> Judgement:
    """Does one kind of NVIDIA's kernel modules, proprietary or open, drive all of these cards on Linux?"""
    closed = next((card for card in cards if not has("open-modules", card.capability)), None)
    opened = next((card for card in cards if has("open-modules-only", card.capability)), None)
    if closed is None or opened is None:
        return Fits()
    kinds = f"{closed.name} needs NVIDIA's proprietary kernel modules, {opened.name} the open ones"
    sentence = f"no driver drives all of these cards on Linux: {kinds}"
    return Clash(sentence=sentence, source=capabilities.need("open-modules-only").source)


def first_list(devices: Collection[str | None]) -> Version | None:
    """The driver for Linux whose list is the first with a card of these device ids; None: older than the lists.

    The first list is not the first driver: one before it may know the card all the same.
    """
    rows = [listed_from(device) for device in devices]
    return None if None in rows else min((row.driver for row in rows if row), default=None)


def unlisted(driver: Driver | None, card: str, devices: Collection[str | None]) -> str | None:
    """What there is to say of a driver that is older than every list that names the card by a device id."""
    if driver is None or driver.counting != "linux":
        return None
    first = first_list(devices)
    return older_than_lists(card, str(first), str(driver)) if first and driver.version < first else None


def older_than_lists(card: str, first: str, driver: str) -> str:
    return f"NVIDIA's lists name {card} from driver {first} on, and {driver} is older"


def drives(driver: Driver | None, card: str, own: Window) -> Judgement:
    """Does this driver drive the card of that name? None: it was looked for, and none runs."""
    if driver is None:
        newest = "the newest driver" + (f" of R{own.last}" if own.last else "")
        change = Alternative(what="driver", value=f"R{own.last}" if own.last else "newest", text=f"install {newest}")
        return Clash(sentence=ABSENT, source="the machine itself", changes=(change,))
    if own.is_after(driver.version):
        change = Alternative(what="driver", value=f"R{own.last}", text=f"install the newest driver of R{own.last}")
        return Clash(
            sentence=f"driver {driver} does not drive {card}: R{own.last} was the last branch that did",
            source="NVIDIA: supported-GPU lists of the drivers",
            changes=(change,),
        )
    if own.is_before(driver.version):
        least = spelled(own.first) if own.first else ""
        change = Alternative(what="driver", value=least, text=f"update the driver to {least} or newer")
        return Clash(
            sentence=f"driver {driver} does not know {card}: {least} is the first that does",
            source="NVIDIA: the driver of the CUDA release that first compiled for it",
            changes=(change,),
        )
    return Fits()
