"""Values to JSON and back, in one place.

Values are frozen `msgspec` structs. A few small types have a spelling of their own (a capability is `3.5`, a target
`sm_90a`, a version `580.65.06`): they have a `parse` class method and `__str__`, and travel as strings.

msgspec learns a type when it decodes it first, and is not safe while it does: another thread that decodes the same type
then reads what is not yet written, and the process ends (msgspec 0.22.0). Here a type is learnt under a lock, once;
nobody else decodes into types.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from rekindle.core import files
from rekindle.core.errors import BadInput, RekindleError, did_you_mean

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_LEARNING = threading.RLock()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_spell, str_keys=True)


def to_json(value: Any, *, indent: int = 2) -> str:
    try:
        data = msgspec.json.encode(value, enc_hook=_spell)
    except UnicodeEncodeError:
        data = msgspec.json.encode(with_texts(to_builtins(value), _readable))
    return msgspec.json.format(data, indent=indent).decode("utf-8") if indent else data.decode("utf-8")


def _readable(text: str) -> str:
    """A file name that is no UTF-8, with its odd bytes as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def with_texts(value: Any, change: Callable[[str], Any], *, keys: bool = True) -> Any:
    """Plain data with every text in it changed; the names of values too, unless `keys` are left alone."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if keys else key: with_texts(each, change, keys=keys) for key, each in value.items()}
    return [with_texts(each, change, keys=keys) for each in value] if isinstance(value, (list, tuple)) else value


class JsonAnswer:
    """What a verb answers: `to_json()` is what its `--json` prints."""

    __slots__ = ()

    def to_json(self) -> str:
        from rekindle.core.redact import without_secrets

        return to_json(without_secrets(to_builtins(self)))


def from_json(data: bytes | str, kind: type[T], *, name: str = "the file") -> T:
    return _decoded(lambda: _decoder(kind).decode(_countable(text_of(data))), kind, name, data)


def kept(file: Path | None, kind: type[T]) -> T | None:
    """What an earlier run wrote down; None where it is gone or unreadable: whoever asks can do without."""
    try:
        return from_json(file.read_bytes(), kind) if file is not None else None
    except (OSError, RekindleError):
        return None


def from_toml(data: bytes | str, kind: type[T], *, name: str = "the file") -> T:
    return _decoded(lambda: _converted(plain_toml(data), kind), kind, name, data)


def from_builtins(value: Any, kind: type[T], *, name: str = "the value") -> T:
    return _decoded(lambda: _converted(value, kind), kind, name)


def like(kind: type[S], source: msgspec.Struct, /, **more: Any) -> S:
    """A struct of this kind with what `source` has under the same names, but its `schema`."""
    names = set(kind.__struct_fields__) & set(source.__struct_fields__) - {"schema"}
    return kind(**{name: getattr(source, name) for name in names} | more)


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a result type; what is committed under `schemas/` and checked in the tests."""
    found: dict[str, Any] = _told_alike(msgspec.json.schema(kind, schema_hook=lambda _: {"type": "string"}))
    return found


def _told_alike(value: Any) -> Any:
    """Descriptions without the margin that docstrings have before Python 3.13, patterns with the ends that all know."""
    from inspect import cleandoc

    if isinstance(value, dict):
        told = {name: _told_alike(each) for name, each in value.items()}
        if isinstance(said := value.get("description"), str):
            told["description"] = cleandoc(said)
        if isinstance(said := value.get("pattern"), str):
            told["pattern"] = said.replace(r"\A", "^").replace(r"\Z", "$")
        return told
    return [_told_alike(each) for each in value] if isinstance(value, list) else value


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A type's decoder. With it, msgspec knows the type and every type inside it."""
    if kind not in _DECODERS:
        with _LEARNING:
            if kind not in _DECODERS:
                _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_unspell)
    return _DECODERS[kind]


def _converted(value: Any, kind: type[T]) -> T:
    _decoder(kind)
    return msgspec.convert(value, type=kind, dec_hook=_unspell, str_keys=True)


def plain_toml(data: bytes | str) -> Any:
    # Three times as fast as the parser of the standard library, which is the same one without its compiled part.
    import tomli

    _no_long_number(found := tomli.loads(text_of(data)))
    return found


def text_of(data: bytes | str) -> str:
    """A text as Windows writes it, too: with a mark before it (Notepad), or in UTF-16 (`>` of PowerShell 5)."""
    if isinstance(data, str):
        return data
    return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")


def expect(schema: object, wanted: str, what: str, *, name: str, hint: str) -> None:
    """The schema that a file names is the one that is read; of a higher number, a newer Rekindle wrote it."""
    if schema == wanted:
        return
    named = f"its schema is `{str(schema)[:60]}`, not" if schema is not None else "it does not name its schema,"
    said = f"{named} `{wanted}`"
    kind, _, number = str(schema)[:60].rpartition("/")
    if kind == wanted.rpartition("/")[0] and number.isdecimal() and int(number) > int(wanted.rpartition("/")[2]):
        raise BadInput(
            f"{name} was written by a newer Rekindle: {said}", hint="update this Rekindle, or write it again"
        )
    raise BadInput(f"{name} is not {what}: {said}", hint=hint)


_ANY = msgspec.json.Decoder()
_AS_NOUGHT, _MANY = bytes.maketrans(b"123456789", b"0" * 9), b"0" * 40


def _countable(text: str) -> str:
    """JSON and Python have numbers of hundreds of digits, no sum with a fraction in it has. No hash has forty digits
    without a letter; a pattern would be slower, and tables of megabytes are asked, too."""
    if _MANY in text.encode("utf-8", "surrogatepass").translate(_AS_NOUGHT):
        _no_long_number(_ANY.decode(text))
    return text


def _no_long_number(value: Any) -> None:
    left = [value]
    while left:
        each = left.pop()
        left += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        if isinstance(each, int) and each.bit_length() > 64:
            raise ValueError("a number of more than 64 bits")


def empty(name: str) -> BadInput:
    return BadInput(f"{name} is empty", hint="name the file that was meant, or make it again")


def _decoded(decode: Callable[[], T], kind: Any, name: str, data: bytes | str | None = None) -> T:
    try:
        return decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if data is not None and not data.strip():
            raise empty(name) from error
        if isinstance(data, bytes) and (other := files.binary_kind(data)):
            raise BadInput(f"{name} is {other}", hint="`rekindle inspect` shows what such a file holds") from error
        if isinstance(error, UnicodeDecodeError):
            hint = "save it as UTF-8, or name the file that was meant"
            raise BadInput(f"{name} is not a text file in UTF-8", hint=hint) from error
        if unknown := re.search(_UNKNOWN, str(error)):
            known = _fields(kind, unknown[2] or "")
            where = f" in `{unknown[2].lstrip('.')}`" if unknown[2] else ""
            hint = f"{did_you_mean(unknown[1], known)}known there: {', '.join(known)}"
            raise BadInput(f"{name}: there is no key `{unknown[1][:60]}`{where}", hint=hint) from error
        message = f"{name} cannot be read: {re.sub(_SHAPE, 'a value of another form', str(error))}"
        hint = "correct it there; if Rekindle wrote it, check that it is complete"
        if re.search(_UNQUOTED, str(error)):
            hint = 'write it in quotes there, such as "3.10": without them it is a number, and 3.10 the same as 3.1'
        raise BadInput(message, hint=hint) from error


_UNQUOTED = r"Expected `[^`]*\bstr\b[^`]*`, got `(?:int|float)`"
_SHAPE = r"Expected `str` matching regex .*?(?= - at `|$)"
_UNKNOWN = r"unknown field `([^`]*)`(?: - at `\$([^`]*)`)?"


def _fields(kind: Any, path: str) -> list[str]:
    """The keys that may stand at such a place: `.projects[...]`."""
    place: Any = msgspec.inspect.type_info(kind)
    for name, item in re.findall(r"\.(\w+)|(\[[^\]]*\])", path):
        if isinstance(place, msgspec.inspect.UnionType):
            kinds = (msgspec.inspect.StructType, msgspec.inspect.DictType, msgspec.inspect.VarTupleType)
            place = next((each for each in place.types if isinstance(each, kinds)), None)
        if name:
            fields = {each.encode_name: each.type for each in getattr(place, "fields", ())}
            place = fields.get(name)
        elif item:
            place = getattr(place, "value_type", None) or getattr(place, "item_type", None)
    return [each.encode_name for each in getattr(place, "fields", ())]


def _spell(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath) or hasattr(type(value), "parse"):  # it travels as its spelling
        return str(value)
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def _unspell(kind: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {type(value).__name__}")
    if kind is Path:
        return Path(value)
    return _parsed(kind, value)


@lru_cache(maxsize=4096)
def _parsed(kind: Any, value: str) -> Any:
    """The tables name the same few capabilities and versions thousands of times; the values never change."""
    return kind.parse(value)
