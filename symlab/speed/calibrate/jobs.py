"""From what was asked to one job for each probe: op: custom with the probe's section, timed in graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.request.configured import configured, plain_configuration
from runner.request.validate import CUSTOM, Request, validate
from runner.request_error import RequestError
from symlab.speed.calibrate.probes import ON_GPUS, PROBES, Probe

OURS = ("op", "custom", "algorithms", "baselines", "sizes", "dtype", "accumulator", "reduction", "placement", "exp")
"""Keys that each probe decides."""

USUAL: Mapping[str, Any] = {
    "timing.samples": 10,
    "timing.warmup": 1,
    "timing.l2": "hot",
    "timing.limit": "none",
    "track.name": "none",
}
"""What holds unless it is given. A calibration takes seconds, and its bandwidths are floors of their own."""


def asked_request(overrides: Sequence[str], config_dir: Path | None) -> tuple[Request, dict[str, Any]]:
    """Return the request that overrides make, and its configuration, without any probe. RequestError for a key that
    the probes decide, and for fewer than 2 ranks."""
    for line in overrides:
        if (key := _key_of(line)) in OURS:
            raise RequestError(f"each probe has its own {key} ({key}), leave it out of a calibration")
    with hydra_over(config_dir):
        (job,) = compose_jobs(overrides, False)
    if job.request.world_size < 2:
        raise RequestError(f"world_size is {job.request.world_size}, and floors are between GPUs (world_size), give 2")
    return job.request, job.configuration


def probe_jobs(overrides: Sequence[str], configuration: Mapping[str, Any]) -> tuple[ComposedJob, ...]:
    """Return a job for each probe, in the order of PROBES. RequestError for a configuration that can't be."""
    given = {line.lstrip("+~").partition("=")[0] for line in overrides}
    return tuple(
        _job(number, probe, probe.section(ON_GPUS), overrides, given, configuration)
        for number, probe in enumerate(PROBES)
    )


def _job(
    number: int,
    probe: Probe,
    section: dict[str, Any],
    overrides: Sequence[str],
    given: set[str],
    configuration: Mapping[str, Any],
) -> ComposedJob:
    """The job of a probe, and the override lines by which it could be run alone."""
    values = {key: dict(value) if isinstance(value, Mapping) else value for key, value in configuration.items()}
    values |= {"op": CUSTOM, "custom": section}
    lines = [*overrides, f"op={CUSTOM}", *(f"custom.{key}={_written(value)}" for key, value in section.items())]
    wanted = {**USUAL, "timing.calls": probe.calls}
    for key, value in wanted.items():
        part, _, name = key.partition(".")
        if key not in given and part not in given:
            values[part][name] = value
            lines.append(f"{'track' if key == 'track.name' else key}={value}")
    config = configured(values)
    return ComposedJob(number, tuple(lines), "", plain_configuration(config), validate(config))


def _written(value: object) -> str:
    """A value as an override has it."""
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


def _key_of(line: str) -> str:
    """The key of an override, of a section its name."""
    return line.lstrip("+~").partition("=")[0].partition(".")[0]


def is_same_section(one: Any, other: Any) -> bool:
    """Return whether two sections say the same, as plain values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
