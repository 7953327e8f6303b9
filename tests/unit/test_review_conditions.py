"""Conditions in scripts: an answer where all that they ask is known, and none otherwise."""

from __future__ import annotations

import pytest

from rekindle.review.readers.conditions import holds

KNOWN = {"X": "11.8", "EMPTY": "", "N": "12", "ON": "true"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('[ "$X" = "11.8" ]', True),
        ('[ "$X" != "11.8" ]', False),
        ("[[ ${X} == 11.* ]]", True),
        ('[[ "$X" == "11.*" ]]', False),
        ('[ "$X" = 12.1 ] || [ "$N" -ge 12 ]', True),
        ('[ "$X" = 12.1 ] && [ "$OTHER" = 1 ]', False),
        ('[ "$X" = 11.8 ] && [ "$OTHER" = 1 ]', None),
        ('[ -z "$EMPTY" ]', True),
        ('[ -n "$OTHER" ]', None),
        ("[ -f setup.py ]", None),
        ('! [ "$X" = 11.8 ]', False),
        ("$ON", True),
        ("nvidia-smi", None),
        ("command -v nvcc", None),
        ('[ "$X" = 1 ] || [ "$X" = 2 ] && [ "$N" = 12 ]', None),
        ('"%X%"=="11.8"', True),
        ('not "%X%"=="11.8"', False),
        ('/i "%X%" equ "12.1"', False),
        ("defined X", True),
        ("exist file.txt", None),
        ("errorlevel 1", None),
        ("!X!==11.8", None),
        ('($x -eq "11.8") -and (-not $on)', None),
        ('$X -eq "11.8"', True),
        ("$env:X -like '11.*'", True),
        ("contains('11.8', '11')", True),
        ("startswith('11.8', '12') && $", False),
        ("always()", None),
        ("(" * 50, None),
        ("", None),
        ("(" * 598, None),
    ],
)
def test_conditions(text: str, answer: bool | None) -> None:
    assert holds(text, KNOWN.get) is answer
