"""From the API's arguments to the runner's requests: the same checks, with the same messages, as the command's."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cases.case import Case
from cases.documents import decoded
from cases.record.request import RecordedRequest
from kernels.baselines import Baseline
from kernels.catalogue import specs_of
from kernels.spec import KernelSpec
from runner.case.cases import AS_ASKED, cases_of, check_against_catalogue, resolved
from runner.case.host_memory import check_host_memory
from runner.environment.host import available_bytes
from runner.records.scrub import scrubbed_values
from runner.request.configured import configured, plain_configuration
from runner.request.schema import Schema
from runner.request.validate import MAX_DEVICE_HEAP_BYTES, Request, ResolvedRequest, validate
from runner.request_error import RequestError
from runner.world.fabrics import FabricRequest

UNUSED = {"baselines": [], "track": {"name": "none"}, "timing": {"mode": "none"}}
"""What no request of the API has, unless it says so."""


@contextmanager
def naming_arguments(arguments: Mapping[str, str]) -> Iterator[None]:
    """Within, a RequestError names arguments of the API in place of the command's keys. arguments: by key."""
    try:
        yield
    except RequestError as error:
        raise RequestError(with_arguments(str(error), arguments)) from error


def with_arguments(message: str, arguments: Mapping[str, str]) -> str:
    """Return a message with arguments in place of keys. A key that is an ordinary word is one in parentheses only."""
    keys = "|".join(map(re.escape, sorted(arguments, key=len, reverse=True)))
    names = re.compile(rf"(?<![\w.'])({keys})(?![\w.\[='])")
    words = re.compile(r"\([^()]*\)")
    special = {key: name for key, name in arguments.items() if not key.isalpha()}

    def replaced(text: str, known: Mapping[str, str]) -> str:
        return names.sub(lambda found: known.get(found[1], found[1]), text)

    return replaced(words.sub(lambda found: replaced(found[0], arguments), message), special)


def described(values: Mapping[str, Any], spec: KernelSpec | None) -> Case:
    """Return the one case of a configuration on whatever fabric it runs later. RequestError if it can never run.

    spec is a kernel that was brought; None: the catalogue's.
    """
    request = checked({**values, "fabric": {"name": "nvshmem", "heap_bytes": MAX_DEVICE_HEAP_BYTES}})
    specs = None if spec is None else (spec,)
    if len(request.placement.placements) > 1:
        raise RequestError("a case has one placement (placement), give out_of_place or in_place")
    named = resolved(request, request.fabric, specs)
    check_against_catalogue(named, specs)
    (found,) = cases_of(named)
    return found


def run_request(
    case: Case, spec: KernelSpec | Baseline, fabric: FabricRequest, asked_fabric: Mapping[str, Any], **how: Any
) -> tuple[ResolvedRequest, RecordedRequest]:
    """Return the request that runs a case on a decided fabric, and what its record says of it. RequestError for what
    can't be.

    asked_fabric is the section that led to fabric. how are other keys of the configuration: launches, check, ...
    """
    values = _values_of(case, spec) | {"fabric": dict(asked_fabric)} | how
    request = checked(values)
    specs = (spec,) if isinstance(spec, KernelSpec) else specs_of(case.op, case.algorithm)
    named = resolved(request, fabric, specs)
    check_against_catalogue(named, specs)
    check_host_memory(named, available_bytes(), specs)
    if cases_of(named) != (case,):
        raise ValueError(f"{case.id} is no case that the runner runs (case), make cases with symlab.case")
    configuration = plain_configuration(configured({**UNUSED, **values}))
    asked = {
        "jobs": 1,
        "overrides": list(_overrides(configuration, plain_configuration(configured({})))),
        "configuration": configuration,
        "resolved": {name: getattr(named, name) for name in ("dtype", "accumulator", "reduction")},
    }
    return (named, decoded(RecordedRequest, scrubbed_values(asked), "request"))


def checked(values: Mapping[str, Any]) -> Request:
    """Return the request that a configuration makes; it writes no records. RequestError for a wrong value."""
    unused = {"records": tempfile.gettempdir()}
    return validate(configured({**UNUSED, "cache_dir": Schema().cache_dir, **values, **unused}))


def _values_of(case: Case, spec: KernelSpec | Baseline) -> dict[str, Any]:
    sizes: dict[str, Any] = {"sizes": {"list": [case.size_bytes]}}
    accumulator = "auto" if isinstance(spec, Baseline) else case.accumulator
    return {
        **{name: getattr(case, name) for name in (*AS_ASKED, "placement", "inputs", "counts")},
        **{"algorithms": [case.algorithm], "accumulator": accumulator},
        **(dict(zip("mnk", case.gemm, strict=True)) if case.gemm else sizes),
    }


def _overrides(configuration: Mapping[str, Any], usual: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The command line that composes to a configuration: what differs from the usual values."""
    for key, value in configuration.items():
        if isinstance(value, dict) and isinstance(usual[key], dict):
            yield from _overrides(value, usual[key], f"{prefix}{key}.")
        elif value != usual[key]:
            yield f"{prefix}{key}={_written(value)}"


def _written(value: object) -> str:
    """A value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "null"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, str) and not value.replace("_", "").isalnum():
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
