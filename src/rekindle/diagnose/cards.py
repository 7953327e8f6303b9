"""The cards that a log names: by capability, or by name where the line speaks of a device that is there.

A log also names cards it does not run on ("supports A100 and RTX 3090"); such lines do not count.
"""

from __future__ import annotations

from functools import lru_cache

from rekindle.core.errors import RekindleError
from rekindle.core.regex import re2
from rekindle.knowledge.gpu.gpus import Match, find_all, gpus
from rekindle.model.card import Capability

# nvidia-smi has little room: `GeForce GTX 106...`.
_CUT = re2.compile(r"\b(?:NVIDIA )?((?:GeForce|Quadro|Tesla|TITAN|GTX|RTX) ?[\w -]{2,24})\.\.\.")
_CAPABILITY = re2.compile(
    r"with CUDA capability sm_(\d{2,3})\b"
    r"|(?i:(?:compute|cuda|\bcc|\bsm)[ _]?capability(?: among GPUs detected)?[ :=]{0,3}\(?(\d{1,2}\.\d)\b)"
    r"|(?i:, capability (\d{1,2}\.\d)\b)"
    r"|(?i:--gpu-name[= ]sm_(\d{2,3})\b)"
    r"|(?i:capability[ :=]{0,3}\((\d{1,2}, \d)\))"
    r"|(?i:\bSM:? (0x\d0\d)\b)"
    r"|(?i:\bArch \((\d{1,2}, \d)\))"
    r"|\bTarget GPU SM (\d{2,3}) is not"
)
_OTHERS = re2.compile(r"\bAMD\b|\bRadeon\b|\bgfx\d{3,4}\b|\bIntel\b")
_PCI = re2.compile(r"(?i)\b(10de:[0-9a-f]{4})\b")
_DEMANDED = re2.compile(
    r"(?i)(?:\b(?:requires?|required|needs?|minimum|maximum|at least|below|supports?|supported|only)\b|>=?|<=?)"
    r"[^.;]{0,50}$"
)
_NAME = re2.compile(
    r"\b((?:NVIDIA )?(?:(?i:Jetson (?:AGX (?:Orin|Xavier)|Orin (?:Nano|NX)|Xavier(?: NX)?|Nano|TX[12]))"
    r"|(?:GeForce |Tesla |Quadro )?(?:(?:GTX|RTX(?: PRO)?|GT|TITAN) ?)?[A-Z]{0,3}\d{1,4}[A-Za-z]{0,2}"
    r"|(?:GeForce |NVIDIA )?(?:GTX |RTX )?TITAN(?: (?:RTX|Xp|[A-Z])\b)?)"
    r"(?: (?:Ti SUPER|Ti|ti|SUPER|Super|Xp|Black\b|Blackwell(?: \w+ Edition)?|Ada(?: Generation)?|Max-Q|Laptop GPU"
    r"|\d{1,2} ?GB|\((?:Pascal|Maxwell)\)))*"
    r"(?:-(?:PCIE|SXM\d)-\d+GB)?)"
)
# The cards of computing centres and small notebooks are known by a letter or two and a number alone.
_CENTRE = (
    r"(?:MX[1-5][1357]0|T4|L4|L40S?|K[48]0|M[46]0|P(?:4|40|100)|V100S?|A(?:10G?|30|40|100|800)|H(?:20|100|200|800)"
    r"|B200|GB(?:10|200))"
)
# A number that a `Ti` follows is a card of the GeForce family, whatever stands before it.
_TI = r"\d{3,4} ?(?:Ti|ti|TI)"
# "my 4060", "a 4060 8G": the family is left out where the number alone is one, and nothing is counted by it.
_BARE = r"(?:(?:20[678]|30[5-9]|40[5-9]|50[5-9])0|16[56]0 ?(?:ti|super|s))"
_NUMBER = re2.compile(
    r"(?i)(?:\b(?:my|an?|dedicated|discrete|gpu is|gpu:|using|with|on|for|have|both)(?: the| an?)? "
    r"(?:\d{1,2} ?GB )?|[张块了是])"
    rf"({_BARE} ?(?:ti(?: super)?|super|laptop|mobile)?)"
    r"(?: ?\d{1,2} ?GB?\b|[,.]? (?:card|gpu|with|and|on|it|nvidia)\b|[,.:] |,[a-z]|[的就]|\W*$)"
)
_OF_SERIES = re2.compile(
    r"(?i)\b(?:RTX|GTX|GeForce) ?([2-5]0|1[06])(?:xx|[ -]?series)\b"
    r"|\b([2-5]0|1[06])[ -]?(?:xx|series) (?:\w+ )?(?:card|gpu)"
    r"|\b(10[5-8]0)(?: ?ti)? (?:system|machine|server|node|box|card|gpu)\b"
)
_MADE_FOR = Capability(5, 0)
_FAMILY = re2.compile(
    rf"\b(?:NVIDIA|GeForce|Tesla|Quadro|(?:GTX|RTX|GT)(?:\d{{3,4}}(?:Ti|ti)?)?|TITAN|(?i:Jetson)|{_TI}|{_CENTRE})\b"
)
_HERE = re2.compile(
    r"(?i)\bgpus? ?\d*\s?[:#=(-]|\bgpu\d?\b|\bdevice\b|\bfound\b|\brunning on\b|capability|cuda:\d|\bcard\b"
    r"|\bdetected\b|\brecogni[sz]ed\b|^['\"]?(?:NVIDIA|GeForce|Tesla|Quadro|TITAN)\b[\w ()-]{1,40}(?:['\"]?$|,)"
    r"|^[GR]TX ?\d{3,4}(?: (?:Ti|Super))?(?:$|,)"
    r"|\b(?:my|I have an?|I.?m (?:using|on)(?: an?)?|I use an?|using an?|with an?|and an?) (?:\w+ ){0,3}"
    r"(?:NVIDIA|GeForce|Tesla|Quadro|GTX|RTX|GT|TITAN|Jetson)\b"
    r"|\b(?:Setup|Specs?|Specifications?|System|Machine|Server|Rig|VGA|Graphics(?: card)?)\b\W{0,3}[:=]|\bHardware\b"
    r"|\bJetson (?:AGX|Orin|Xavier|Nano|TX)"
    r"|\b(?:on|with|using|have|has|my|and) (?:an? |the |one |\d ?x ?)?(?:new |single |old )?"
    rf"(?:{_CENTRE}|{_TI}|[GR]TX(?: PRO)? ?\d{{3,4}})\b"
    rf"|\b{_CENTRE} (?:\w+ )?(?:colab|kaggle)\b"
    r"|\bon (?:an?|my|the) (?:\w+ ){0,2}(?:NVIDIA|GeForce|Tesla|Quadro|GTX|RTX|TITAN)\b"
    r"|controller: NVIDIA|installed in this system|^\s*\d+\s{1,3}(?:NVIDIA|Tesla|GeForce|Quadro)"
)
_DEMANDS = r"(?i)\b(?:supports?|requires?|such as|e\.g\.|for example|like|newer than|older than|tested on|if you have"
_NOT_MEANT, _NOT_HERE = (re2.compile(rf"{_DEMANDS}{more})\b[^.;]{{0,80}}$") for more in ("", "|on an?"))
# "I am running it on an RTX 2080" is that person's own card.
_OWN = re2.compile(
    r"(?i)\b(?:I|we|I.?m|I.?ve)\b(?:[^.;]|\.\d){0,80}\bon (?:an?|my|the) (?:\w+ ){0,2}$|\blike (?:my|our) $"
    r"|\b(?:not|\w*n.t|no longer) (?:yet )?supports?(?:ed)?(?: by| on| for| the| my)? (?:\w+ )?$"
)
_WORKS = re2.compile(r"(?i)\bworks?\b|\bno (?:issues?|problems?|errors?)\b|\bfine\b")

# A sentence about another machine, on which the same thing works.
_PARTS = re2.compile(r"(?i)[.;!?]+\s+|,? (?:but|while|whereas|however),? ")
_ELSEWHERE = re2.compile(
    r"(?i)\b(?:works?|worked|runs?|ran|working|fine|normal|no (?:issues?|problems?))\b.{0,60}\b(?:on|in|with|under) "
    r"(?:my|the|an?|our|another|other|one|(?:google )?colab|kaggle|runpod|vast\.ai)\b"
    r"|\b(?:on|with) (?:my|the|an?|our|another|other)\b.{0,80}"
    r"\b(?:works|worked|runs|ran|is fine|no (?:issues?|problems?))\b"
)
_SERIES = re2.compile(r"[GR]TX ?\d{1,2}$")
_DRIVER = re2.compile(r"\.[\dx]")
_UNTICKED = ("- [ ]", "[ ]", "* [ ]")
_GOOD = re2.compile(r"(?i)\b(?:\w+n.?t|not|never) (?:hang|crash|fail|happen|occur|freeze|stop)\w*")
_NOT = re2.compile(
    r"(?i)\b(?:not|no (?:longer|GPU|CUDA|card)|fails?|failed|never|until|used to|before|only|\w+n.t"
    r"|try(?:ing)?|tried|get (?:it|this) to|in the (?:ui|console|terminal|browser)|on the (?:node|host))\b"
)


# People write names as they come: `rtx 3060`, `tesla k80`, `my p40`.
_SMALL = re2.compile(
    r"(?i)\b(?:(?:geforce|tesla|quadro) )*(?:(?:rtx|gtx|titan|gt) ?[a-z]?\d{2,4}|(?:tesla|quadro) ?[a-z]{1,2}\d{1,4}"
    r"|titan (?:xp|x|v|rtx|black))"
    r"(?: ?ti)?\b|\b(?:9[5-8]|10[5-8]|16[56]|20[678])0 ?ti\b"
    rf"|(?:^|[(/,] ?|\b(?:my|an?|on|with|the|have|kaggle|colab|and) ){_CENTRE}(?:[ ,.;:)/!?]|$)"
)
_RESPELLED = (
    (re2.compile(r"\b(\d{3,4}) ((?i:[GR]TX))\b"), r"\2 \1"),  # `1060 GTX`
    (re2.compile(r"(?i)\bRTX[ -]?PRO[ -]?(\d{4})\b"), r"RTX PRO \1"),
    (re2.compile(r"(?i)\bDGX[ -]Spark\b"), "GB10"),
)
_PROPER = {"GEFORCE": "GeForce", "TESLA": "Tesla", "QUADRO": "Quadro", "TI": "Ti", "XP": "Xp", "BLACK": "Black"}


def of_this_machine(text: str) -> str:
    """Without the sentences that say that it works on another machine, and without boxes that are not ticked."""
    if text.startswith(_UNTICKED):
        return ""
    for pattern, spelling in _RESPELLED:
        text = pattern.sub(spelling, text)
    text = _SMALL.sub(lambda match: " ".join(_PROPER.get(w, w) for w in match.group(0).upper().split(" ")), text)
    if not _ELSEWHERE.search(text):
        return text
    return ". ".join(
        part for part in _PARTS.split(text) if not _ELSEWHERE.search(part) or _NOT.search(_GOOD.sub("", part))
    )


def in_line(text: str, *, title: bool = False) -> list[tuple[Capability, str | None]]:
    """The capabilities that the line tells of cards that are there, each with the card's name where it has one."""
    names = cards_in_text(text, title=title)
    # A program made for two makers numbers the other's cards in the same words.
    for match in _CAPABILITY.finditer(text) if not _OTHERS.search(text) else ():
        number = next(group for group in match.groups() if group).replace(", ", ".")
        if not _DEMANDED.search(text[: match.start()]):
            # TensorRT writes `0x809`.
            number = f"{number[2]}.{number[4]}" if number.startswith("0x") else number
            return [(Capability.parse(number), names[0][1] if names else None)]
    # What `lspci -nn` and the kernel call a card: `10de:1bb3`.
    pci = _PCI.search(text)
    capability = _capability(pci.group(1).lower()) if pci and not names else None
    return [(capability, None)] if capability else [*names]


def unread(text: str) -> list[str]:
    """What looks like a card that is there, and is in no table."""
    if _PCI.search(text):
        return [_PCI.search(text).group(1)]
    if not _FAMILY.search(text) or not _HERE.search(text):
        return []
    found = (match.group(1) for match in _NAME.finditer(text) if _FAMILY.search(match.group(1)))
    return [name for name in found if not _cards(name)][:1]


def cards_in_text(text: str, *, title: bool = False) -> list[tuple[Capability, str]]:
    """The cards that are there, by their names. What a title names is what its text is about."""
    named, found = _by_name(text, title), _NUMBER.search(text) or _OF_SERIES.search(text)
    if named or not found or _NOT_HERE.search(text[: found.start()]):
        return named
    number = next(filter(None, found.groups())).strip()
    family, series = "GTX" if number.startswith("1") else "RTX", len(number) == 2
    # All cards of a series have the capability of its 60.
    capability = _capability(f"{family} {number}60" if series else number)
    return [(capability, f"{family} {number}{' series' if series else ''}")] if capability else []


def _by_name(text: str, title: bool) -> list[tuple[Capability, str]]:
    if not _FAMILY.search(text) or not (title or _HERE.search(text)):
        return []
    cut = _CUT.search(text)
    if cut:
        return [found] if (found := _beginning_with(cut.group(1))) else []
    every: dict[Capability, str] = {}
    for match in _NAME.finditer(text):
        # `two RTX A5000s`; the `s` of a 1660s is its own.
        plural = match.group(1).endswith("0s") and not _cards(match.group(1))
        spelled = match.group(1)[:-1] if plural else match.group(1)
        before = text[: match.start()]
        own = _OWN.search(before) and not _WORKS.search(text)
        demands = _NOT_MEANT if title and not _WORKS.search(text[match.end() :].split(". ")[0]) else _NOT_HERE
        # `NVIDIA 470.xx` is a driver.
        named = _FAMILY.search(spelled) and not _SERIES.search(spelled) and not _DRIVER.match(text[match.end() :])
        if named and (own or not demands.search(before)):
            capability = _capability(spelled)
            if capability is not None:
                every.setdefault(capability, spelled)
    return list(every.items())


@lru_cache(maxsize=64)
def _beginning_with(begun: str) -> tuple[Capability, str] | None:
    """The cards whose name begins so, where all of them have one capability."""
    found = [gpu for gpu in gpus() if gpu.official and gpu.name.removeprefix("NVIDIA ").startswith(begun)]
    known = {gpu.capability for gpu in found}
    return (known.pop(), min((gpu.name for gpu in found), key=len)) if len(known) == 1 else None


def chips(name: str) -> str | None:
    """`TU116`; several where the name stands for several."""
    return " ".join(sorted({gpu.chip for match in _cards(name) for gpu in match.gpus})) or None


def _capability(name: str) -> Capability | None:
    """None where no card has the name, or cards of several capabilities do."""
    every = {capability for match in _cards(name) for capability in match.capabilities}
    # Where even the best of them is too old for what is made today, it stands for all.
    return max(every) if len(every) == 1 or max(every, default=_MADE_FOR) < _MADE_FOR else None


@lru_cache(maxsize=256)
def _cards(name: str) -> tuple[Match, ...]:
    """What a name stands for; nothing where no card has it."""
    try:
        return tuple(find_all([name]))
    except RekindleError:
        return ()
