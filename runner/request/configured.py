"""A configuration from plain values, without files of conf/ and without Hydra's global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cases.record.request import as_today
from runner.request.gpu_types import with_limits
from runner.request.overrides import check_value
from runner.request.schema import Schema
from runner.request_error import RequestError
from simulator.options import BEFORE


def merged(values: Mapping[str, Any]) -> DictConfig:
    """Return a whole configuration of a record's: values, and the schema's for what is not among them. check: true is
    short for check: {results: true}, as in older records; they lack keys of the fabric, too (options.BEFORE).

    Raises OmegaConfBaseException for an unknown key and for a value of another type.
    """
    today = as_today(values)
    if isinstance(fabric := today.get("fabric", {}), Mapping):
        today = {**today, "fabric": {**BEFORE, **fabric}}
    found = OmegaConf.merge(OmegaConf.structured(Schema), today)
    assert isinstance(found, DictConfig)
    return found


def configured(values: Mapping[str, Any]) -> DictConfig:
    """Like merged, with the limits of the GPU that it names, and a RequestError that says what is wrong as the command
    does. A key of BEFORE is null if it is not given."""
    for key, value in values.items():
        if key != "custom":
            check_value(key, value)
    given = values.get("fabric", {})
    if isinstance(given, Mapping):
        values = {**values, "fabric": {**dict.fromkeys(BEFORE), **given}}
    try:
        return with_limits(merged(values), isinstance(given, Mapping) and "arch" in given)
    except OmegaConfBaseException as error:
        from runner.request.explain import explain

        raise RequestError(explain(error)) from error


def plain_configuration(config: DictConfig) -> dict[str, Any]:
    """Return a configuration as a record holds it: plain values, words and keys (offsets of structs) as text."""
    container = _with_text_keys(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    assert isinstance(container, dict)
    return container


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(one) for key, one in value.items()}
    return [_with_text_keys(one) for one in value] if isinstance(value, list) else value
