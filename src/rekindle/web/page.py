"""Turns a template and values into a page: escaped, with a Content-Security-Policy, without anything from elsewhere.

Styles and scripts are part of the page, so that it can be mailed as one file; the policy names them by their hash, so
that nothing which slips into the page from a log or a machine's name can run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from rekindle.core import console
from rekindle.core.redact import secrets


def render(template: str, /, *, script: str | None = None, **values: Any) -> str:
    """The page `template` with the common style and, if named, one script, both inline."""
    style = asset("rekindle.css")
    code = asset(script) if script else ""
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hashed(style)}",
            f"script-src {_hashed(code)}" if code else "script-src 'none'",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return _templates().get_template(template).render(style=style, script=code, policy=policy, **values)


def render_linked(template: str, /, *, root: str, served: bool = False, **values: Any) -> str:
    """A page of the site: its style and scripts are files beside it, under `root`.

    `file:` is for a site opened from disk, where a page has no address of its own that `'self'` could mean; a page that
    `rekindle serve` hands out may ask its own server.
    """
    more = "connect-src 'self'" if served else "connect-src 'none'"
    disk = "" if served else " file:"
    policy = (
        f"default-src 'none'; style-src 'self'{disk}; script-src 'self'{disk}; {more}; base-uri 'none'; "
        "form-action 'none'"
    )
    return _templates().get_template(template).render(policy=policy, root=root, **values)


def policy_of(text: str) -> str:
    """The policy that a page brings with it, to be sent as a header as well."""
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    return html.unescape(found[1]) if found else "default-src 'none'"


@cache
def asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("rekindle.web"),
        autoescape=True,
        finalize=_safe,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["duration"] = console.duration
    made.filters["size"] = console.size
    made.filters["sentence"] = sentence
    made.filters["gaps"] = gaps
    return made


def _safe(value: Any) -> Any:
    """What a page says of logs and machines, as the console says it; not what is markup already, such as a script."""
    return secrets(value) if type(value) is str else value


def sentence(text: str) -> Markup:
    """A sentence of the command line: what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(secrets(text)))))


def gaps(text: str) -> Markup:
    """A sentence with gaps such as `{arch}`, which only a log can fill: their names in capitals."""
    return Markup(re.sub(r"\{(\w+)\}", lambda found: f"<var>{found[1].upper()}</var>", sentence(text)))
