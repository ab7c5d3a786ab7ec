"""Hydra's and OmegaConf's errors in one line."""

from __future__ import annotations

import dataclasses
import re
import typing
from enum import Enum

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from runner.request.schema import SECTIONS, Schema
from runner.request_error import first_line, near


def explain(error: BaseException) -> str:
    """One line for what Hydra and OmegaConf say in several: what, where, what would be right."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return f"unknown {group or 'configuration'} '{name}' ({group or 'config'}), {near(name, error.options or ())}"
    if isinstance(error, OverrideParseException):
        return f"can't read '{error.override}' (command line), write overrides as key=value, with quotes where needed"
    text = str(error)
    if text.startswith("Multiple values for "):
        group = text.removeprefix("Multiple values for ").partition(".")[0]
        return f"several values of one group ({group}), give one, or sweep over them: -m +{group}=a,b"
    file = _file(text)
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    if isinstance(error, OmegaConfBaseException):
        cause = error
    found = re.search(r"full_key: (\S+)", f"{text}\n{cause or ''}")
    key = found[1] if found else ""
    if re.search(r"Key '.*' (is )?not in", f"{text}\n{cause or ''}"):
        return f"unknown key '{key}' ({key}{file}), {near(*_siblings(key))}"
    default = re.match(r"Could not override '([^']+)'\. No match in the defaults list", text)
    if default:
        return f"unknown key '{default[1]}' ({default[1]}), {near(*_siblings(default[1]))}"
    section = re.search(r"(\w+) is not a subclass of (\w+)Schema\. value: (.*)", f"{text}\n{cause or ''}")
    if section and (file or (key in SECTIONS and key != "sizes")):
        key = section[2].lower()
        return f"{key} is a section and not '{section[3]}' ({key}{file}), give it keys: {_keys(key)}"
    word = re.match(r"Invalid value '(.*)', expected one of \[", str(cause or _last_message(text)))
    if word and (words := _words(key)):
        return f"unknown {key.rpartition('.')[2]} '{word[1]}' ({key}{file}), {near(word[1], words)}"
    if key:
        said = first_line(cause) if cause else _last_message(text)
        said = re.sub(r"is not a valid input for <enum '\w+'>", "is not a word", said)
        return f"{said} ({key}{file}), give {_wanted(key)}"
    if file:
        return f"{_last_message(text)} ({file.removeprefix(' in ')}), see symlab --help"
    return f"{first_line(error)} (command line), see symlab --help"


def _siblings(key: str) -> tuple[str, list[str]]:
    """The last part of a key, and the keys that the schema has beside it."""
    section, _, name = key.rpartition(".")
    if section.partition(".")[0] == "hydra":
        return name, ["hydra.mode", "hydra.sweeper.params"]
    schema = SECTIONS.get(section)
    return name, [member.name for member in dataclasses.fields(schema)] if schema else []


def _wanted(key: str) -> str:
    """What kind of value the schema has for a key."""
    section, _, name = key.rpartition(".")
    if name == "sizes":
        return "a range {min: 1K, max: 1M, factor: 4}, or in a file {list: [1K, 4K]}"
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}
    if words := _words(key):
        return f"one of {', '.join(words)}"
    for member in dataclasses.fields(SECTIONS.get(section, Schema)):
        if member.name == name:
            return kinds.get(str(member.type).partition(" ")[0], "a value of another type")
    return "a value of another type"


def _words(key: str) -> list[str]:
    """The words that a key takes; none where it takes others."""
    section, _, name = key.rpartition(".")
    kind = typing.get_type_hints(SECTIONS.get(section, Schema)).get(name)
    return [str(word) for word in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _last_message(text: str) -> str:
    """The line before "full_key:", which is the one that says what is wrong."""
    lines = [line.strip() for line in text.splitlines()]
    at = next((index for index, line in enumerate(lines) if line.startswith("full_key:")), 1)
    return lines[max(at - 1, 0)]


def _file(text: str) -> str:
    """ " in exp/mine.yaml" where Hydra's message says that a file was being read."""
    found = re.match(r"In '([^']+)': \w+ raised while composing", text)
    return f" in {found[1]}.yaml" if found else ""


def _keys(section: str) -> str:
    """The first two keys of a section, as an example."""
    names = [member.name for member in dataclasses.fields(SECTIONS[section])]
    return f"{{{names[0]}: .., {names[1]}: ..}}"
