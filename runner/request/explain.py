"""Hydra's and OmegaConf's errors in one line."""

from __future__ import annotations

import re
from pathlib import Path

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from runner.request.launching import unknown_option
from runner.request.overrides import config_folders, group_options
from runner.request_error import near


def explain(error: BaseException) -> str:
    """Return Hydra's message in one line; of a file that does not exist, and of what is no override, what is right."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_file(error.missing_cfg_file, str(error))
    if isinstance(error, OverrideParseException):
        text = str(error.override)
        named = f"did you mean +exp={text}?" if text in group_options("exp") else "write overrides as key=value"
        return f"can't read '{text}' (command line), {named}"
    cause = error.__cause__
    more = f" {cause}" if isinstance(cause, OmegaConfBaseException) and str(cause) not in str(error) else ""
    said = " ".join(f"{error}{more}".split())
    if found := re.search(r"Key '.*' not in '(\w+)' full_key: (hydra\.launcher\.\S+)", said):
        return unknown_option(found[2], found[1])
    place = "" if str(error).startswith("In '") else " (command line)"
    return f"{said}{place}, see symlab run --help"


def _missing_file(path: str, text: str) -> str:
    """What is wrong with the choice of a file that does not exist, such as exp/mine; text is Hydra's message."""
    group, _, name = path.partition("/")
    group, name = (group, name) if name else ("", group)
    if any((folder / group / f"{name.removesuffix('.yml')}.yml").is_file() for folder in config_folders()):
        return f"{group}/{name.removesuffix('.yml')}.yml ends in .yml ({group}), name it {Path(name).stem}.yaml"
    where = text.partition("'")[2].partition("'")[0] if text.startswith("In '") else "config"
    place = group or "config" if where == "config" else f"defaults in {where}.yaml"
    return f"unknown {group or 'configuration'} '{name}' ({place}), {near(name, group_options(group))}"
