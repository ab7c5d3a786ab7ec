"""Hydra's and OmegaConf's errors in one line."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from runner.request.launching import launcher_of_options, options_of, without_effect
from runner.request.overrides import config_folders, group_options
from runner.request.schema import SECTIONS, Schema
from runner.request_error import first_line, near


def explain(error: BaseException) -> str:
    """One line for what Hydra and OmegaConf say in several: what, where, what would be right."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_file(error.missing_cfg_file, error.options or (), str(error))
    if isinstance(error, OverrideParseException):
        return f"can't read '{error.override}' (command line), write overrides as key=value, with quotes where needed"
    text = str(error)
    return explain_choice(text) or _of_keys(error, text) or f"{first_line(error)} (command line), see symlab run --help"


def _missing_file(path: str, options: Sequence[str], text: str) -> str:
    """What is wrong with the choice of a file that does not exist, such as exp/mine; text is Hydra's message."""
    group, _, name = path.partition("/")
    group, name = (group, name) if name else ("", group)
    stem = name.removesuffix(".yml")
    if any((Path(folder) / group / f"{stem}.yml").is_file() for folder in config_folders()):
        return f"{group}/{stem}.yml ends in .yml ({group}), name it {Path(stem).name}.yaml"
    parent = re.match(r"In '([^']+)': ", text)
    is_in_file = parent is not None and parent[1] != "config"
    where = f"defaults in {parent[1]}.yaml" if parent is not None and is_in_file else group or "config"
    # Hydra lists no options for a name in a file's own group.
    known = options or (group_options(group) if is_in_file else ())
    return f"unknown {group or 'configuration'} '{name}' ({where}), {near(name, known)}"


def explain_choice(text: str) -> str:
    """What Hydra says of the choice of a group and of an override that adds or removes; "" for anything else."""
    if text.startswith("Multiple values for "):
        group = text.removeprefix("Multiple values for ").partition(".")[0]
        if group in SECTIONS:
            return f"{group} has a value already ({group}), leave out the +: {group}=.., or give it once"
        return f"several values of one group ({group}), give one, or sweep over them: -m +{group}=a,b"
    if found := re.match(r"force-add of config groups is not supported: '\++([^=]*)=", text):
        return f"++ is unsupported for a group ({found[1]}), leave it out: {found[1]}=.."
    if found := re.match(r"Could not append to config\. An item is already at '([^']*)'", text):
        return f"the key '{found[1]}' is there already ({found[1]}), leave out the +: {found[1]}=.."
    if found := re.match(r"Could not delete '([^']*)'\. No match in the defaults list", text):
        return f"no {found[1]} was chosen that could be removed (~{found[1]}), leave it out"
    if found := re.match(r"Could not delete from config\. (?:The value of )?'([^']*)'", text):
        return f"no '{found[1]}' with that value to remove (~{found[1]}), leave it out"
    if found := re.match(r"Could not override '([^'@]*)@[^']*'", text):
        return f"a package is unsupported ({found[1]}@..), leave it out: {found[1]}=.."
    if found := re.match(r"Could not override '([^']+)'\. No match in the defaults list", text):
        name, siblings = _siblings(found[1])
        if name in siblings:  # a folder of hydra.searchpath makes a group of it
            return f"{name} is a group without a default ({name}), add one of its files: +{name}=.."
        return f"unknown key '{found[1]}' ({found[1]}), {near(name, siblings)}"
    if found := re.match(r"Invalid defaults list in '([^']*)', (.*)", text):
        return f"{found[1]}.yaml: {found[2]} (defaults), write it as a list: defaults: [override /fabric: simulator]"
    return ""


def _of_keys(error: BaseException, text: str) -> str:
    """What OmegaConf says of a key and its value; "" where no key and no file is named."""
    file = _file(text)
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else None
    if isinstance(error, OmegaConfBaseException):
        cause = error
    everything = f"{text}\n{cause or ''}"
    found = re.search(r"full_key: (\S+)", everything)
    key = found[1] if found else ""
    if key.startswith("hydra.launcher.") and re.search(r"Key '.*' (is )?not in", everything):
        return _of_launcher(key, everything)
    if re.search(r"Key '.*' (is )?not in", everything):
        return f"unknown key '{key}' ({key}{file}), {near(*_siblings(key))}"
    said = first_line(cause) if cause else _last_message(text)
    if key in SECTIONS and key and key != "sizes" and (wrong := _not_a_section(said, everything)):
        return f"{key} is a section and not {wrong} ({key}{file}), give it keys: {_keys(key)}"
    section = re.search(r"is not a subclass of (\w+)Schema\. value: (.*)", everything)
    if section and file:
        key = section[1].lower()
        return f"{key} is a section and not '{section[2]}' ({key}{file}), give it keys: {_keys(key)}"
    word = re.match(r"Invalid value '(.*)', expected one of \[", str(cause or _last_message(text)))
    if word and (words := _words(key)):
        return f"unknown {key.rpartition('.')[2]} '{word[1]}' ({key}{file}), {near(word[1], words)}"
    if key:
        return f"{reworded(said, key)} ({key}{file}), give {_wanted(key)}"
    if file:
        return f"{reworded(said, '')} ({file.removeprefix(' in ')}), see symlab run --help"
    return ""


def _of_launcher(key: str, everything: str) -> str:
    """What is wrong with an unknown option of a launcher; Hydra's message names the dataclass of its options."""
    kind = re.search(r"object_type=(\w+)", everything)
    launcher = launcher_of_options(kind[1]) if kind else ""
    name = key.removeprefix("hydra.launcher.")
    if kind and kind[1] == "dict" and "." in name:
        return f"'{name}' is new ({key}), add it with a +: +{key}=.."
    if not launcher:
        return str(without_effect(key))
    return f"{launcher} has no option '{name}' ({key}), {near(name, options_of(launcher))}"


def _not_a_section(said: str, everything: str) -> str:
    """How the value was written that stands where a section belongs; "" if that is not what is wrong."""
    if re.search(r"not Optional|Incompatible value 'None'", said):
        return "null"
    if "ListConfig" in said:
        return "a list"
    found = re.search(r"is not a subclass of \w+Schema\. value: (.*)", everything)
    return f"'{found[1]}'" if found else ""


_REWORDED = (
    (r"field '.*' is not Optional", "{name} is null"),
    (r"Incompatible value 'None' for field of type '\w+'", "{name} is null"),
    (r"Value '(.*)' of type '\w+' could not be converted to Integer", "'{0}' is not a whole number"),
    (r"Value '(.*)' of type '\w+' could not be converted to Float", "'{0}' is not a number"),
    (r"Value '(.*)' is not a valid bool.*", "'{0}' is not true or false"),
    (r"Value '(.*)' of type '\w+' could not be converted to \w+", "'{0}' is unsuitable"),
    (r"Cannot convert '\w+' to string: '(.*)'", "'{0}' is not a word"),
    (r"Value (.*) \(\w+\) is not a valid input for <enum '\w+'>", "{0} is not a word"),
    (r"Interpolation key '(.*)' not found", "${{{0}}} refers to an unknown key"),
    (r"Recursive interpolation detected", "{name} refers to itself"),
    (r"Unsupported interpolation type (.*)", "${{{0}:..}} is an unknown resolver"),
    (r"\w+ raised while resolving interpolation: \"?(.*?)\"?", "{0}"),
    (r"Invalid value '(.*)', expected one of \[.*\]", "'{0}' is an unknown word"),
    (r"Missing mandatory value: (.*)", "{name} has no value"),
    (r"Cannot merge DictConfig with ListConfig", "a list stands where keys belong"),
    (r"Cannot merge ListConfig with DictConfig", "keys stand where a list belongs"),
    (r"Index '.*' \(str\) is not an int", "a list stands where keys belong"),
    (r"Incompatible key type '(\w+)'", "a key is not a word"),
)
"""OmegaConf's sentences, and ours. {name} is the key's last part, {0} what the sentence names."""


def reworded(said: str, key: str) -> str:
    """Return what is wrong with the value of a key, in the words of a person who never heard of OmegaConf."""
    for pattern, words in _REWORDED:
        if found := re.fullmatch(pattern, said):
            return words.format(*found.groups(), name=key.rpartition(".")[2])
    return said


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
        return "sizes: [1K, 4K], or a range {min: 1K, max: 1M, factor: 4}"
    if key == "hydra.mode":
        return "RUN or MULTIRUN"
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}
    if words := _words(key):
        return f"one of {', '.join(words)}"
    if section and section not in SECTIONS:
        return "another value"
    for member in dataclasses.fields(SECTIONS.get(section, Schema)):
        if member.name == name:
            return kinds.get(str(member.type).partition(" ")[0], "another value")
    return "another value"


def _words(key: str) -> list[str]:
    """The words that a key takes; none where it takes others."""
    section, _, name = key.rpartition(".")
    kind = typing.get_type_hints(SECTIONS.get(section, Schema)).get(name)
    kinds = (kind, *typing.get_args(kind))  # also of a key that may be null
    words = next((one for one in kinds if isinstance(one, type) and issubclass(one, Enum)), None)
    return [str(word) for word in words] if words is not None else []


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
