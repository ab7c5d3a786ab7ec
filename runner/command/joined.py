"""What each rank of a launcher's world makes of its own command line, and which words orders and answers have.

Rank 0 sends no code and no kernel: it names a program of PROGRAMS, and kernels by the digests of their sources and of
their PTX. Every other rank looks them up among the kernels of the command that it composed itself, compiles them
itself, and refuses an order if a digest is another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.fabric import Executable
from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.world import fabrics
from runner.world.plain import Vocabulary

if TYPE_CHECKING:
    from cases.case import Case
    from kernels.spec import KernelSpec
    from runner.custom.program import CompiledCustom
    from runner.request.options import RunOptions
    from runner.world.rank import FabricOpener

PROGRAMS = frozenset(
    {
        "runner.case.library_modules:bring_module",
        "runner.case.program:run_case",
        "runner.case.stress:run_stressed",
        "runner.command.case_programs:read_traits",
        "runner.custom.program:run_custom",
        "runner.environment.gpus:rank_facts",
        "runner.timing.measure:measure",
    }
)
"""All programs that a command runs on the ranks of a world. A test reads the runner's sources for others."""

MODULES = frozenset(
    {
        "memory.fabric",
        "cases.case",
        "cases.stress",
        "cases.record.record",
        "cases.record.timing",
        "runner.case.check",
        "runner.case.contestant",
        "runner.case.library_modules",
        "runner.case.program",
        "runner.case.reference",
        "runner.case.stress",
        "kernels.own.arguments",
        "runner.custom.nouns",
        "runner.custom.program",
        "runner.request.schema",
        "runner.timing.custom",
        "runner.timing.kernel_names",
        "runner.timing.link",
        "runner.timing.measure",
    }
)
"""Where the dataclasses and enums of these programs' arguments and results are."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled kernel as a message names it."""

    name: str
    arch: str
    digest: str


class JoinedCommand:
    """runner.world.launched.OwnCommand: the jobs of a command, as this rank composed them.

    folder is where relative paths of brought kernels begin; None: the working folder.
    """

    def __init__(self, jobs: Sequence[ComposedJob], folder: Path | None = None) -> None:
        self._jobs = tuple(jobs)
        self._folder = folder
        self._customs: dict[tuple[str, ...], CompiledCustom] = {}

    @cached_property
    def digest(self) -> str:
        """Of all jobs' overrides and configurations, in hexadecimal."""
        asked = [[job.number, list(job.overrides), job.experiment, job.configuration] for job in self._jobs]
        return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(MODULES, PROGRAMS, _referred, self._resolved, self._completed)

    def opener(self) -> FabricOpener:
        return fabrics.joined_opener(self._jobs[0].request.fabric)

    @cached_property
    def _specs(self) -> dict[tuple[str, str], KernelSpec]:
        """All kernels of this command by name and digest of their sources: the catalogue's, and those it brings."""
        from kernels.catalogue import ALL_SPECS
        from runner.case.bringing import with_names

        brought = [one.spec for job in self._jobs for one in with_names(job.request, self._folder)[1]]
        return {_named(spec): spec for spec in (*ALL_SPECS, *brought)}

    def _resolved(self, kind: str, name: Any) -> object:
        """What a reference names. ValueError for what this rank does not have."""
        match kind, name:
            case "kernel", [str(key), str(digest)]:
                from kernels.catalogue import find
                from kernels.tuned_name import has_tuning

                if has_tuning(str(key)) and _named(tuned := find(str(key))) == (key, digest):
                    return tuned
                if (key, digest) not in self._specs:
                    raise ValueError(
                        f"{key} has other sources here than on rank 0, or none: start all ranks from the same files"
                    )
                return self._specs[key, digest]
            case "baseline", str():
                from kernels.baselines import find_baseline

                found = find_baseline(name)
                if found is not None:
                    return found
            case "custom", [str(_), str(arch), str(_), str(_)]:
                return self._custom(tuple(name), arch)
            case "compiled", [str(key), str(arch), str(digest)]:
                return _Compiled(key, arch, digest)
        raise ValueError(f"rank 0 names a {kind} that is unknown here")

    def _completed(self, kind: type, given: dict[str, Any]) -> dict[str, Any]:
        """Put what this rank compiled in the place of what rank 0 named. ValueError if it is other code."""
        if "executables" in given:
            wanted = zip(given["cases"], given["executables"], strict=True)
            return {**given, "executables": tuple(self._kernel(given["spec"], case, one) for case, one in wanted)}
        if isinstance(given.get("executable"), _Compiled):
            return {**given, "executable": self._kernel(given["spec"], given["case"], given["executable"])}
        return given

    def _kernel(self, spec: KernelSpec, case: Case, wanted: _Compiled) -> Executable:
        """The kernel that rank 0 named, compiled here. ValueError if it is other code."""
        from kernels.compile import executable

        found = executable(spec, case, wanted.arch, self._jobs[0].request.cache_dir)
        if found.digest != wanted.digest:
            raise _other_code(wanted.name)
        return found

    def _custom(self, name: tuple[str, ...], arch: str) -> CompiledCustom:
        """The custom kernel of this command that has the name. ValueError if none has."""
        if name not in self._customs:
            self._customs |= {_custom_name(one): one for one in self._custom_kernels(arch)}
        if name not in self._customs:
            raise _other_code(name[0])
        return self._customs[name]

    def _custom_kernels(self, arch: str) -> Iterator[CompiledCustom]:
        from runner.custom.description import custom_job

        for job in self._jobs:
            asked = job.request
            if asked.custom is not None:
                custom = custom_job(asked.custom, asked.world_size, asked.seed, False, self._folder)
                yield custom.compiled(arch)


def _other_code(name: str) -> ValueError:
    return ValueError(
        f"{name} is other code here than on rank 0: start all ranks from the same files, with the same versions of the "
        "compiler"
    )


def composed_command(options: RunOptions) -> JoinedCommand:
    """Return the command that a command line asks for. RequestError for a wrong one."""
    with hydra_over(options.config_dir):
        return JoinedCommand(compose_jobs(options.overrides, options.multirun))


def _custom_name(compiled: CompiledCustom) -> tuple[str, ...]:
    """What tells custom kernels of a command apart: their code, and how they are launched."""
    made = compiled.whole
    return made.name, made.arch, made.digest, repr([one.launch for one in (compiled, *compiled.then)])


def _named(spec: KernelSpec) -> tuple[str, str]:
    from kernels.compile import source_digest

    return spec.name, source_digest(spec)


def _referred(value: object) -> tuple[str, Any] | None:
    """How messages name a kernel, a library's baseline, and what was compiled; None for all else."""
    from kernels.baselines import Baseline
    from kernels.spec import KernelSpec
    from runner.custom.program import CompiledCustom

    if isinstance(value, CompiledCustom):
        return "custom", list(_custom_name(value))
    if isinstance(value, Executable):
        return "compiled", [value.name, value.arch, value.digest]
    if isinstance(value, KernelSpec):
        return "kernel", list(_named(value))
    if isinstance(value, Baseline):
        return "baseline", value.name
    return None
