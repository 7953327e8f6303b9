"""Does a driver run what a toolkit makes, on these cards? What `compat` judges, as routes and rejections."""

from __future__ import annotations

import msgspec

from rekindle.compat import driver_card, driver_cuda
from rekindle.compat.driver_card import Window
from rekindle.compat.driver_cuda import DriverNeed, spelled
from rekindle.compat.judgement import Clash, Fits, Unknown
from rekindle.core.errors import RekindleError
from rekindle.core.version import Version
from rekindle.knowledge.cuda.toolkits import Toolkit
from rekindle.knowledge.gpu import gpus
from rekindle.knowledge.gpu.drivers import branch_of
from rekindle.stack.rules import Candidate, Rejection, broken
from rekindle.stack.situation import Card, Situation


class Driving(msgspec.Struct, frozen=True, kw_only=True):
    """The driver that a CUDA needs on these cards. Without `jit` only native code runs, not PTX."""

    need: DriverNeed
    window: Window
    jit: bool
    loses: tuple[str, ...] = ()

    def words(self, *, by_jit: bool = False) -> str:
        return self.window.words(self.need, jit=by_jit)

    @property
    def detail(self) -> str:
        upto = f", up to R{self.window.last}" if self.window.last is not None else ""
        reachable = self.window.last is None or branch_of(self.need.full) <= self.window.last
        more = self.need.detail if reachable else "native code only: no branch that drives the card compiles its PTX"
        return f"{self.words()}: {more}{upto}" if not reachable else f"{more}{upto}"


def window_of(situation: Situation) -> Window:
    """The drivers that drive all the cards."""
    return driver_card.common([card_window(card, situation.driver_system) for card in situation.cards])


def card_window(card: Card, system: str) -> Window:
    return driver_card.common(
        [driver_card.window(each, system, last_branch=card.last_driver_branch) for each in card.capabilities]
    )


def unlisted(situation: Situation) -> list[str]:
    """Where the driver that was named may be older than a card that was."""
    if situation.here:
        return []
    said = (driver_card.unlisted(situation.driven_by, card.name, devices_of(card.name)) for card in situation.cards)
    return [doubted(sentence) for sentence in said if sentence]


def doubted(sentence: str) -> str:
    return f"{sentence}: whether it drives the card is UNVERIFIED"


def devices_of(name: str) -> list[str]:
    """The device ids of a card that is known by this name; none where it is a snapshot's own."""
    try:
        found = gpus.find(name, undecided=True)
    except RekindleError:
        return []
    named = found.gpus if found.by is gpus.MatchedBy.NAME else ()
    return [pci.partition(":")[0] for gpu in named for pci in gpu.pci_ids]


def cards_driven(situation: Situation, window: Window) -> list[Rejection]:
    """What speaks against the cards and their driver, whatever PyTorch is chosen."""
    candidate = Candidate(name="any PyTorch")
    if window.empty:
        old = min(situation.cards, key=lambda card: card_window(card, situation.driver_system).last or 10**6)
        new = max(situation.cards, key=lambda card: card_window(card, situation.driver_system).first or Version("0"))
        return [broken("no-common-driver", candidate, old=old.name, last=window.last, new=new.name, first=window.first)]
    modules = driver_card.share_modules(situation.named_cards)
    if isinstance(modules, Clash) and situation.driver_system == "linux" and not situation.wsl:
        return [broken("no-common-modules", candidate, sentence=modules.sentence)]
    if situation.driven_by is None and not situation.no_driver:
        return []
    found: list[Rejection] = []
    for card in situation.cards:
        own = card_window(card, situation.driver_system)
        answer = driver_card.drives(situation.driven_by, card.name, own)
        if isinstance(answer, Clash):
            late = situation.driver is not None and own.is_after(situation.driver)
            rule = "no-driver" if situation.no_driver else "card-driver-too-new" if late else "card-driver-too-old"
            found.append(broken(rule, candidate, sentence=answer.sentence))
    return found


def drive(toolkit: Toolkit, situation: Situation, window: Window, candidate: Candidate) -> Driving | Rejection:
    """How the driver runs what this toolkit makes, or why it does not."""
    need = driver_cuda.need(toolkit.version, situation.driver_system)
    if isinstance(need, Unknown):
        return broken("driver-too-old", candidate, row=toolkit, sentence=need.missing)
    if window.last is not None and branch_of(need.floor) > window.last:
        card = _ending_with(situation, window.last)
        words = {"cuda": toolkit.version, "need": spelled(need.floor), "last": window.last, "card": card.name}
        return broken("driver-branch", candidate, row=toolkit, **words)
    driver = situation.driven_by
    if situation.no_driver:
        return broken("no-driver", candidate, row=toolkit, sentence=driver_card.ABSENT)
    if driver is None and (window.last is None or branch_of(need.full) <= window.last):
        return Driving(need=need, window=window, jit=True)
    if driver is None:
        lost = f"no driver up to R{window.last} compiles the PTX of CUDA {toolkit.version}: only native code runs"
        return Driving(need=need, window=window, jit=False, loses=(lost,))
    answer = driver_cuda.runs(driver, toolkit.version)
    if isinstance(answer, Clash):
        return broken("driver-too-old", candidate, row=toolkit, sentence=answer.sentence)
    loses = answer.loses if isinstance(answer, Fits) else ()
    return Driving(need=need, window=window, jit=driver.version >= need.full, loses=loses)


def _ending_with(situation: Situation, last: int) -> Card:
    ending = (card for card in situation.cards if card_window(card, situation.driver_system).last == last)
    return next(ending, situation.cards[0])
