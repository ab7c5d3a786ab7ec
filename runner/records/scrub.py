"""Keeps secrets and home folders out of everything that is written: records, command.json, configurations, diffs.

scrubbed() is for text of any origin: what a dying rank said, a command line, the difference of sources. It takes out
what looks like a secret by its form, what is the value of one of this process's variables with a secret's name, and
home folders: they become ~, so that their owner still finds the path. If in doubt, it takes out too much rather than
too little; but digests, commits, ids of cases and of GPUs stay as they are.
"""

from __future__ import annotations

import functools
import json
import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cases.documents import decoded, encoded
from cases.record.record import Record

Plain = TypeVar("Plain")

WITHHELD = "withheld"
"""What stands for a secret. It has no meaning to a shell, to YAML or to Hydra: the line can be read again."""

MIN_SECRET = 6
"""Characters. A shorter value of a variable would be found by chance in what has nothing to do with it."""

_CACHED = 4096
"""Longer texts, in characters, are not remembered."""

_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|AUTH|COOKIE|JWT|_KEY$", re.IGNORECASE)
"""Names of variables whose values are secrets."""

_KEY = r"(?:tokens?|secrets?|passw(?:or)?ds?|passwd|pwd|credentials?|signature|(?:api|access|private|secret)[_-]?key)"
_TOKEN = r"gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|ASIA|AIza|npm_|pypi-|nvapi-"
_FORMS = (
    (r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----[\s\S]{0,16384}?-----END \1PRIVATE KEY-----", WITHHELD),
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s|\\,:-]*", WITHHELD),
    # user and password of a URL; a password that has a / in it, too
    (r"([a-z][a-z0-9+.-]{0,20}://)[^/\s\"']*@", rf"\g<1>{WITHHELD}@"),
    (r"([a-z][a-z0-9+.-]{0,20}://)[^/\s:@\"']*:(?!\d*/)[^\s@\"']*@", rf"\g<1>{WITHHELD}@"),
    (r"\b(bearer|basic(?=\s+\S*[\d=]))(\s+|%20)[\w.~+/=-]{8,}", rf"\g<1>\g<2>{WITHHELD}"),
    (r"\beyJ[\w-]{8,}\.[\w.=-]*", WITHHELD),  # a JSON web token
    (rf"\b(?:{_TOKEN})[\w-]{{8,}}", WITHHELD),
    # "name": "value", name='value', name: type = "value", --name "value"
    (rf"({_KEY}[\"']?(?:\s*:\s*[\w.\[\]|]+)?\s*[=:\s]\s*)([\"'])(?:(?!\2)[^\n])+\2", rf"\g<1>\g<2>{WITHHELD}\g<2>"),
    # the same without quotes: close to its name anything, else what is not too short
    (rf"({_KEY}[\"']?(?:=|%3D|:))(?!{WITHHELD}\b)[^\s\"']+", rf"\g<1>{WITHHELD}"),
    (rf"({_KEY}[\"']?\s*[=:]\s*)(?!{WITHHELD}\b)[^\s\"'(){{}}\[\]]{{{MIN_SECRET},}}", rf"\g<1>{WITHHELD}"),
    (rf"(--[\w-]{{0,20}}?{_KEY}\s+)(?!{WITHHELD}\b)[^\s\"'-]\S*", rf"\g<1>{WITHHELD}"),
)
_FORM = tuple((re.compile(pattern, re.IGNORECASE | re.ASCII), instead) for pattern, instead in _FORMS)
_MIXED = re.compile(
    r"(?<![\w/.+-])(?=[A-Za-z+/]*[0-9])(?=[A-Z0-9+/]*[a-z])(?=[a-z0-9+/]*[A-Z])[A-Za-z0-9+/]{32,}={0,2}(?![\w/.-])"
)
"""Long, of large and small letters and digits, and no part of a name: a key in base64. A digest is in hexadecimal."""

_LONG = re.compile(r"(?<![\w/.-])(?=[\w+-]*[0-9])(?=[\w+-]*[A-Za-z])[\w+-]{32,}={0,2}(?![\w/.-])", re.ASCII)
"""In a variable, where no digest is expected, anything long of letters and digits that is no part of a path."""

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
"""How GPUs are named in CUDA_VISIBLE_DEVICES: long and random, and no secret."""

_PLACE = r"(?:(?<![\w.~-])|(?<=\s-[A-Za-z]))"
"""Where a path begins in a text: not within another one; but after an option such as -I."""

_HOMES = rf"{_PLACE}(?:/root(?![\w-])|/(?:home|Users)/[^/\s:;,\"'|]+)"


_FREE = ("refusal", "fabric", "check", "timing", "environment", "request")
"""Parts of a record that hold free text, beside its reason."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of this process: the values of its secret variables, its home folders."""

    values: tuple[str, ...]
    homes: tuple[str, ...]


def scrubbed(text: str) -> str:
    """The text without secrets and home folders, as UTF-8. What was scrubbed before stays as it is."""
    known = _known(os.environ)
    return _remembered(text, known) if len(text) <= _CACHED else _scrubbed(text, known)


def without_secrets(text: str) -> str:
    """The text without secrets, but with its home folders: for a person's own terminal, where paths are copied from."""
    return _withheld(text, _known(os.environ))


def scrubbed_values(value: Plain) -> Plain:
    """Plain JSON values with every string in them scrubbed; keys are left."""
    return _walked(value, _known(os.environ))  # type: ignore[no-any-return]


def scrubbed_record(record: Record) -> Record:
    """The record with its free texts and its free-form parts scrubbed. What it measured and compared is left."""
    known = _known(os.environ)
    parts = {name: part for name in _FREE if (part := getattr(record, name)) is not None}
    told = {name: decoded(type(part), _walked(encoded(part), known), name) for name, part in parts.items()}
    return replace(record, reason=_scrubbed(record.reason, known), **told)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's name or value says that it is nothing for others to see."""
    if _NAME.search(name):
        return True
    plain = _UUID.sub("", value)
    return bool(_LONG.search(plain)) or _without_forms(plain) != plain


def _known(environment: Mapping[str, str]) -> _Known:
    """The values in all the ways in which they may be written, longest first; homes likewise."""
    values = set()
    for name, value in environment.items():
        value = value.strip()
        if _NAME.search(name) and len(value) >= MIN_SECRET and value != WITHHELD and not _is_path(value):
            values |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
            values |= {urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value)}
    home = os.path.expanduser("~")
    homes = {folder.rstrip("/") for folder in (home, os.path.realpath(home)) if folder.startswith("/")} - {""}
    return _Known(_longest_first(values), _longest_first(homes))


def _longest_first(texts: set[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=lambda text: (-len(text), text)))


def _is_path(value: str) -> bool:
    """A socket or a key's file, say: where a secret lies is none."""
    return value.startswith("/") and Path(value).exists()


@functools.lru_cache(maxsize=_CACHED)
def _remembered(text: str, known: _Known) -> str:
    return _scrubbed(text, known)


def _scrubbed(text: str, known: _Known) -> str:
    # A name that is not UTF-8 has lone surrogates, which a reader of JSON refuses: they become escapes.
    writable = text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _home_pattern(known.homes).sub("~", _withheld(writable, known))


def _withheld(text: str, known: _Known) -> str:
    for value in known.values:
        text = text.replace(value, WITHHELD)
    return _without_forms(text)


def _without_forms(text: str) -> str:
    """The text without what is a secret by its form."""
    for pattern, instead in _FORM:
        text = pattern.sub(instead, text)
    return _MIXED.sub(WITHHELD, text)


@functools.lru_cache(maxsize=8)
def _home_pattern(homes: tuple[str, ...]) -> re.Pattern[str]:
    own = "".join(rf"{_PLACE}{re.escape(home)}(?![\w-])|" for home in homes)
    return re.compile(own + _HOMES)


def _walked(value: Any, known: _Known) -> Any:
    if isinstance(value, str):
        return _remembered(value, known) if len(value) <= _CACHED else _scrubbed(value, known)
    if isinstance(value, Mapping):
        return {key: _walked(one, known) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walked(one, known) for one in value]
    return value
