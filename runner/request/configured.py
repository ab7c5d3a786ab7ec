"""A configuration from plain values, without files of conf/ and without Hydra's global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cases.record.request import as_today
from runner.request.explain import explain
from runner.request.gpu_types import with_limits
from runner.request.schema import Schema
from runner.request_error import RequestError


def merged(values: Mapping[str, Any]) -> DictConfig:
    """Return a whole configuration: values, and the schema's for what is not among them. check: true is short for
    check: {results: true}, as in older records.

    Raises OmegaConfBaseException for an unknown key and for a value of another type.
    """
    found = OmegaConf.merge(OmegaConf.structured(Schema), as_today(values))
    assert isinstance(found, DictConfig)
    return found


def configured(values: Mapping[str, Any]) -> DictConfig:
    """Like merged, with the limits of the GPU that it names, and a RequestError that says what is wrong as the command
    does. fabric.granularity is null if it is not given: the schema's own default is for older records."""
    try:
        given = values.get("fabric", {})
        if isinstance(given, Mapping):
            values = {**values, "fabric": {"granularity": None, **given}}
        return with_limits(merged(values), isinstance(given, Mapping) and "arch" in given)
    except OmegaConfBaseException as error:
        raise RequestError(explain(error)) from error


def plain_configuration(config: DictConfig) -> dict[str, Any]:
    """Return a configuration as a record holds it: plain values, words as text."""
    container = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}
