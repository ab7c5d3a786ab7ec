"""What a record says of the command that made it, and of where that ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cases.documents import LATER, make_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """The command that asked for a case.

    command names it, and with it the folder of its records; "" if the record does not say. command_line is how it was
    started. job counts from 0 the jobs of a sweep; jobs is their number, None if the record does not say. overrides are
    the job's; configuration is what they compose to. resolved has the names that a configuration left open: dtype,
    accumulator, reduction. replays names the records that a replay repeats. kernel is what our kernel was given beside
    the case: its choices and its patience in seconds, a tuning on trial, and the table that chose it. config_dir has
    folder and digest of the configurations that --config-dir added, None without that option. brought has, by
    algorithm, the place that a kernel was brought from, its digest, and which of its files are kept beside the record;
    None if the job brings none. resumed is None of what ran before the command was cut short; else the number, from 1,
    of the resumption that ran the case.
    """

    command: str = ""
    command_line: tuple[str, ...] = ()
    experiment: str = ""
    job: int = 0
    jobs: int | None = field(default=None, metadata=LATER)
    overrides: tuple[str, ...] = ()
    configuration: dict[str, Any] | None = field(default=None, metadata=LATER)
    resolved: dict[str, Any] | None = field(default=None, metadata=LATER)
    replays: dict[str, Any] | None = field(default=None, metadata=LATER)
    kernel: dict[str, Any] | None = field(default=None, metadata=LATER)
    config_dir: dict[str, Any] | None = field(default=None, metadata=LATER)
    brought: dict[str, Any] | None = field(default=None, metadata=LATER)
    resumed: int | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        make_plain(self, "request")
        for name, value, least in (("job", self.job, 0), ("jobs", self.jobs, 1), ("resumed", self.resumed, 1)):
            if value is not None and value < least:
                raise ValueError(f"request.{name} is {value}; it is a whole number from {least}")

    @property
    def chosen_by(self) -> str:
        """The word for which a table chose the case's kernel, "best"; "" if the case was asked for by name."""
        chosen = (self.kernel or {}).get("chosen")
        word = chosen.get("by") if isinstance(chosen, Mapping) else ""
        return word if isinstance(word, str) else ""


GONE = {
    **{"timing.predict": None, "timing.lead_in_calls": "0", "timing.shared": "false", "isolation": None},
    **{"timing.window": "kernel", "timing.precision": "null"},
}
"""Keys that there were, with the value by which nothing ran otherwise than today, as overrides spell it; None: every
value, for no result depends on them. A key with another value is left for today's schema to refuse."""


def overrides_today(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return overrides without those of keys that there were, GONE."""
    pairs = ((one, *one.lstrip("+").partition("=")[::2]) for one in overrides)
    return tuple(one for one, key, value in pairs if not _is_gone(key, value))


def _is_gone(key: str, value: object) -> bool:
    return key in GONE and GONE[key] in (None, "null" if value is None else str(value).lower())


def as_today(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in today's form, without the keys GONE: in records of before schema 5, check is true or
    false."""
    found = {key: value for key, value in configuration.items() if not _is_gone(key, value)}
    if isinstance(timing := found.get("timing"), Mapping):
        found["timing"] = {key: value for key, value in timing.items() if not _is_gone(f"timing.{key}", value)}
    if not isinstance(found.get("check", {}), Mapping):
        found["check"] = {"results": found["check"], "races": False}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEnvironment:
    """Where a case ran, as runner.environment captured it; every field is None where the record does not say.

    git: the commit and what differs from it. packages: versions by name of what is installed; records of before have
    None for what is not. sources: a digest for each package of this project. gpus: one object a GPU; gpu_pairs: how any
    two are connected. variables: those of the process environment that may be kept, and the number of the others.
    not_captured: reasons by name for what was unavailable. capture_s: seconds that the capture took. world: what the
    ranks added. problem: why the capture failed as a whole.
    """

    git: dict[str, Any] | None = field(default=None, metadata=LATER)
    python: dict[str, Any] | None = field(default=None, metadata=LATER)
    torch: dict[str, Any] | None = field(default=None, metadata=LATER)
    packages: dict[str, Any] | None = field(default=None, metadata=LATER)
    sources: dict[str, Any] | None = field(default=None, metadata=LATER)
    host: dict[str, Any] | None = field(default=None, metadata=LATER)
    gpus: tuple[dict[str, Any], ...] | None = field(default=None, metadata=LATER)
    gpu_pairs: dict[str, Any] | None = field(default=None, metadata=LATER)
    cuda_driver: str | None = field(default=None, metadata=LATER)
    launch: dict[str, Any] | None = field(default=None, metadata=LATER)
    variables: dict[str, Any] | None = field(default=None, metadata=LATER)
    not_captured: dict[str, Any] | None = field(default=None, metadata=LATER)
    capture_s: float | None = field(default=None, metadata=LATER)
    world: dict[str, Any] | None = field(default=None, metadata=LATER)
    problem: str | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        make_plain(self, "environment")
