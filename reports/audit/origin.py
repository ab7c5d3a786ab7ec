"""Where records come from: items 1 to 6, 8 and 17 of the checklist."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cases.documents import encoded
from cases.record.reading import contents
from cases.record.record import Record
from reports.audit.bound_repository import known
from reports.audit.completeness import exit_codes, resumptions
from reports.audit.differences import differences, older_than_code_digests
from reports.audit.items import Ground, Item, Outcome, Point, captured_or, listed, verified_or
from reports.audit.material import Material, values_at, why_missing
from reports.audit.ptx import StoredCode
from reports.audit.reruns import code_points
from reports.audit.statistics import world_of
from reports.audit.worker import RERUN_S
from reports.table.text import counted

SOFTWARE = ("python", "torch", "packages", "cuda_driver", "library", "gpus.driver")
"""Beginnings of names: what must be the same in all worlds of a case, or figures over them mean nothing."""

UNTRACKED_NAMED = 5
"""Maximum number of untracked files to name."""

_USER_IN_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s@:\"]+:[^/\s@\"]+@")


def configuration(material: Material) -> Item:
    missing = [one.id for one in material.records if one.request.configuration is None]
    composed = _composed(material)
    points = _presence(missing, len(material.records), "configuration, overrides and choices of %s")
    if composed.outcome is Outcome.VERIFIED:
        points = [point for point in points if point.outcome is not Outcome.CAPTURED]
    points.append(composed)
    return Item(1, "configuration", tuple(points))


def _composed(material: Material) -> Point:
    """The worker's word on composing the overrides again."""
    if material.again is None:
        return Point(Outcome.NOT_COMPARABLE, f"not composed again here: {material.problem}")
    found = material.again["configurations"]
    different, elsewhere = found["different"], found["not_comparable"]
    jobs = found["verified"] + len(different) + len(elsewhere)
    if different:
        texts = [f"job {job + 1} of {command}: {what}" for command, job, what in different]
        says = f"{len(different)} of {counted(jobs, 'job')} compose differently: {listed(texts)}"
        return Point(Outcome.FINDING, says, Ground.RECOMPUTED, (jobs - len(elsewhere), jobs))
    if elsewhere:
        texts = [f"job {job + 1} of {command}: {why}" for command, job, why in elsewhere]
        return Point(Outcome.NOT_COMPARABLE, f"{len(elsewhere)} of {counted(jobs, 'job')}: {listed(texts)}")
    says = f"{counted(jobs, 'job')} composed again from the overrides; 0 differ"
    if not jobs:
        return Point(Outcome.NOT_CAPTURED, "no job to compose again")
    return Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, (jobs, jobs))


def repository(material: Material) -> Item:
    points: list[Point] = []
    for environment in material.environments:
        git = environment.get("git")
        if not isinstance(git, dict) or not git.get("commit"):
            why = why_missing(environment, "git") or "the record does not say"
            points.append(Point(Outcome.NOT_CAPTURED, f"commit: {why}"))
        elif git.get("dirty") is None:
            points.append(
                Point(Outcome.NOT_CAPTURED, f"commit {_brief(git['commit'])}, but not whether it was changed")
            )
        elif not git["dirty"]:
            points.append(
                Point(Outcome.CAPTURED, f"commit {_brief(git['commit'])} ({git.get('branch', '')}), unchanged")
            )
        else:
            points += _dirt(material, git)
    return Item(2, "commit and what differed from it", _once([*points, *known(material)]))


def _dirt(material: Material, git: Mapping[str, Any]) -> list[Point]:
    """Return what is known of the changes to a commit, and of the files that are in no commit."""
    points = []
    if git.get("changed_files") != 0:
        points.append(_difference(material, git))
    if number := git.get("untracked_files"):
        names = git.get("untracked")
        known = list(map(str, names))[:UNTRACKED_NAMED] if isinstance(names, list) else []
        more = number - len(known) if type(number) is int else 0
        ends = f" and {more:,} more" if known and more > 0 else ""
        files = counted(number, "untracked file") if type(number) is int else "untracked files"
        named = f": {', '.join(known)}{ends}" if known else ""
        says = f"commit {_brief(git['commit'])}, with {files}, whose contents were not kept{named}"
        points.append(Point(Outcome.NOT_CAPTURED, says))
    return points or [Point(Outcome.NOT_CAPTURED, f"commit {_brief(git['commit'])}, changed, but not how")]


def _difference(material: Material, git: Mapping[str, Any]) -> Point:
    """Return what is known of the changes to files of a commit."""
    number = git.get("changed_files")
    files = counted(number, "changed file") if type(number) is int else "changed files"
    says = f"commit {_brief(git['commit'])}, with {files}"
    kept = git.get("kept_diff")
    if not isinstance(kept, dict):
        return Point(Outcome.NOT_CAPTURED, f"{says}; the changes themselves were not kept")
    wanted, name = str(kept.get("digest")), str(kept.get("file"))
    # What a record names is a file of its own folder.
    found = [folder / name for folder in material.folders if name == Path(name).name and (folder / name).is_file()]
    if not found:
        return Point(Outcome.NOT_COMPARABLE, f"{says}, kept in {name}, which is not beside these records")
    digests = {f"sha256:{hashlib.sha256(contents(path)).hexdigest()}" for path in found}
    if wanted not in digests:
        return Point(Outcome.FINDING, f"{says}, kept in {name}: its digest is not the recorded one")
    cut = f"; {kept['left_out_bytes']} bytes of it were left out" if kept.get("left_out_bytes") else ""
    return Point(Outcome.CAPTURED, f"{says}, kept in {name}; its digest is the recorded one{cut}")


def kernels(material: Material) -> Item:
    with_kernel = [record for record in material.records if record.kernel is not None]
    if not with_kernel:
        return Item(3, "kernels' digests", (Point(Outcome.DOES_NOT_APPLY, "no case was run by a kernel of ours"),))
    points: list[Point] = []
    lacking = [one.id for one in with_kernel if one.kernel and not (one.kernel.ptx_digest and one.kernel.source_digest)]
    points += _presence(lacking, len(with_kernel), "digests of sources and PTX of %s")
    points += _one_code(with_kernel)
    points.append(_stored_ptx(material, with_kernel))
    points += _sources_today(material)
    points += code_points(material)
    return Item(3, "kernels' digests", tuple(points))


def _one_code(with_kernel: Iterable[Record]) -> list[Point]:
    """Whether every world ran a case with the same code; with the same PTX where a record is older than code digests.

    For another architecture it is another.
    """
    found: dict[tuple[str, str], list[Record]] = {}
    for one in with_kernel:
        assert one.kernel is not None
        if one.kernel.ptx_digest:
            found.setdefault((one.id, one.kernel.arch), []).append(one)
    compared: dict[str, int] = {}
    several: dict[str, list[str]] = {}
    older = []
    for (case, arch), members in found.items():
        if len({world_of(one) for one in members}) < 2:
            continue
        kernels = [one.kernel for one in members if one.kernel is not None]
        by_code = all(one.code_digest is not None for one in kernels)
        what = "code" if by_code else "PTX"
        digests = {one.code_digest if by_code else one.ptx_digest for one in kernels}
        if len(digests) > 1 and older_than_code_digests(kernels):
            older.append(case)
            continue
        compared[what] = compared.get(what, 0) + 1
        if len(digests) > 1:
            several.setdefault(what, []).append(f"{case} ran {len(digests)} versions of its {what} ({arch})")
    points = [_of_all_worlds(what, count, several.get(what, [])) for what, count in sorted(compared.items())]
    if older:
        says = "worlds recorded before code digests and after; sources moved since, so PTX differs in line information"
        points.append(Point(Outcome.NOT_COMPARABLE, f"{counted(len(older), 'case')}: {says}: {listed(older)}"))
    nothing = "no case has the digest of its PTX from two worlds: nothing to compare"
    return points or [Point(Outcome.DOES_NOT_APPLY, nothing)]


def _of_all_worlds(what: str, count: int, several: list[str]) -> Point:
    """What is said of cases that were compared by code, or by PTX."""
    means = " (PTX without line information)" if what == "code" else ""
    good = f"each of {counted(count, 'case')} ran one {what}{means} in all of its worlds"
    return captured_or(several, good, count, f"cases ran several versions of their {what}")


def _stored_ptx(material: Material, with_kernel: Iterable[Record]) -> Point:
    """Whether PTX files beside the records are what their names and the records say."""
    if not material.folders:
        return Point(
            Outcome.NOT_CAPTURED, "PTX: no folder of a command here, so its text is not kept beside the records"
        )
    bad: list[str] = []
    there: set[str] = set()
    codes: dict[str, StoredCode] = {}
    for path in sorted(path for folder in material.folders for path in (folder / "ptx").glob("*.ptx")):
        try:
            data = contents(path)
            if hashlib.sha256(data).hexdigest() != path.stem:
                bad.append(f"ptx/{path.name} is not what its name says")
            elif path.stem not in codes:
                codes[path.stem] = StoredCode(data)
        except ValueError as error:
            bad.append(f"ptx/{path.name}: {error}")
        there.add(path.stem)
    wanted = set[str]()
    folders = {str(document.get("command", folder.name)): folder for folder, document in material.commands.items()}
    for one in with_kernel:
        if one.kernel is None or not one.kernel.ptx_digest:
            continue
        name = one.kernel.ptx_digest.removeprefix("sha256:")
        wanted.add(name)
        folder = folders.get(one.request.command)
        if name not in there or (folder is not None and not (folder / "ptx" / f"{name}.ptx").is_file()):
            bad.append(f"ptx/{name}.ptx is missing{f' in {folder.name}' if folder is not None else ''}")
        if (code := codes.get(name)) is not None:
            bad += [f"{one.id}: ptx/{name[:12]}..: {what}" for what in code.contradicted(one.kernel)]
    bad = list(dict.fromkeys(bad))
    if not there | wanted:
        return Point(Outcome.NOT_CAPTURED, "PTX: no file of it, and no record has its digest")
    good = f"{counted(len(there), 'PTX file')}: each is what its name and the records say, none is missing"
    return captured_or(bad, good, len(there | wanted), "PTX files")


def _sources_today(material: Material) -> list[Point]:
    """Information, not a finding: sources may change, and so may code."""
    if material.again is None:
        return [Point(Outcome.NOT_COMPARABLE, f"not compared with today's sources: {material.problem}")]
    found = material.again["sources"]
    parts = {
        "sources moved, code as today": found["same_code"],
        "changed since": [*found["changed"], *(f"{name} (gone)" for name in found["gone"])],
        "recorded before code digests, sources moved since": found["older"],
    }
    said = [f"{what}: {listed(names, 10)}" for what, names in parts.items() if names]
    same = counted(len(found["same"]), "kernel")
    as_today = len(found["same"]) + len(found["same_code"])
    total = as_today + sum(len(found[part]) for part in ("changed", "gone", "older", "not_comparable"))
    points = []
    text = f"sources: {same} as today; {'; '.join(said)}" if said else f"sources of {same} are today's"
    if as_today:
        points.append(Point(Outcome.VERIFIED, text, Ground.COMPARED, (as_today, total)))
    elif said:
        points.append(Point(Outcome.CAPTURED, text))
    if found["not_comparable"]:
        names = [f"{name} ({why})" for name, why in found["not_comparable"]]
        text = f"sources of {counted(len(names), 'kernel')} were not compared with today's: {listed(names, 10)}"
        points.append(Point(Outcome.NOT_COMPARABLE, text))
    return points


def software(material: Material) -> Item:
    wanted = {"Python": "python.version", "packages": "packages.torch", "CUDA that torch is built for": "torch.version"}
    if material.on_gpus:
        wanted |= {"driver": "gpus.driver", "CUDA of the driver": "cuda_driver"}
        wanted |= {"NCCL": "packages.nvidia-nccl-cu13", "NVSHMEM": "packages.nvidia-nvshmem-cu13"}
    if any(record.kernel is not None for record in material.records):
        wanted |= {"CuTe DSL": "packages.nvidia-cutlass-dsl"}
    points = [*_captured(material, wanted), _alike(material)]
    return Item(4, "software", _once(points))


def _alike(material: Material) -> Point:
    """Whether all worlds of a case ran on the same software."""
    if len(material.worlds) < 2:
        return Point(Outcome.DOES_NOT_APPLY, "one world: nothing to compare it with")
    # A case's records in the first world that has it: no world has to have all cases.
    known: dict[str, list[Record]] = {}
    found: dict[str, None] = {}
    compared: set[str] = set()
    for name, world in material.worlds.items():
        earlier: dict[str, list[Record]] = {}
        for case in dict.fromkeys(one.id for one in world if one.id in known):
            earlier.setdefault(world_of(known[case][0]), []).extend(known[case])
        for other, ours in earlier.items():
            cases = {one.id for one in ours}
            sides = [ours, [one for one in world if one.id in cases]]
            if all(any(_names_software(one) for one in side) for side in sides):
                compared |= {name, other}
            for one in differences(*sides):
                if one.what.startswith(SOFTWARE):
                    found[f"{one.what}: {' '.join(one.before) or 'none'} and {' '.join(one.after) or 'none'}"] = None
        new: dict[str, list[Record]] = {}
        for record in world:
            new.setdefault(record.id, []).append(record)
        known = new | known
    if found:
        return Point(Outcome.FINDING, f"worlds of one case ran on different software: {listed(found)}")
    if not compared:
        worlds = counted(len(material.worlds), "world")
        says = f"of {worlds} no two have a case in common and say what software they ran on"
        return Point(Outcome.NOT_COMPARABLE, says)
    says = f"{counted(len(compared), 'world')}: Python, packages, libraries and driver are the same wherever cases are"
    return Point(Outcome.CAPTURED, says)


def _names_software(record: Record) -> bool:
    """Whether its environment names software: a library's version alone says nothing of Python and packages."""
    environment = encoded(record.environment)
    paths = (name for name in SOFTWARE if name != "library")
    return any(values_at(environment, path) for path in paths)


def machine(material: Material) -> Item:
    wanted = {"host": "host.name", "kernel": "host.kernel", "CPU": "host.cpu_model", "NUMA nodes": "host.numa_nodes"}
    if material.on_gpus:
        wanted |= {"GPU model": "gpus.model", "GPU UUID": "gpus.uuid", "links": "gpus.nvlink.count"}
        wanted |= {"fabric state": "gpus.fabric.state", "MIG": "gpus.mig"}
    points = _captured(material, wanted)
    if material.on_gpus:
        points.append(_known_gpus(material))
    return Item(5, "machine", _once(points))


def _known_gpus(material: Material) -> Point:
    """Whether the GPUs that were timed are among those that the environment lists."""
    strange, looked_at = [], 0
    for record in material.timed:
        assert record.timing is not None
        listed_here = set(map(str, values_at(encoded(record.environment), "gpus.uuid")))
        states = [state for one in record.timing.devices for state in one.values() if isinstance(state, dict)]
        used = {str(state["uuid"]) for state in states if "uuid" in state}
        if used and listed_here:
            looked_at += 1
            strange += [f"{record.id} ran on {uuid}, which is not listed" for uuid in sorted(used - listed_here)]
    if not looked_at:
        return Point(Outcome.NOT_CAPTURED, "which GPU each rank had: no timing says, or no GPU is listed")
    return captured_or(
        strange, f"the GPUs of {counted(looked_at, 'timing')} are among those listed", looked_at, "timings"
    )


def variables(material: Material) -> Item:
    points: list[Point] = []
    for environment in material.environments:
        kept = environment.get("variables")
        if isinstance(kept, dict) and isinstance(kept.get("allowed"), dict):
            says = (
                f"{counted(len(kept['allowed']), 'variable')} kept by the allow-list, {kept.get('withheld', '?')} not"
            )
            points.append(Point(Outcome.CAPTURED, says))
        else:
            points.append(Point(Outcome.NOT_CAPTURED, "variables: the record holds none, and not how many there were"))
    points.append(_secrets(material))
    return Item(6, "variables, secrets withheld", _once(points))


def _secrets(material: Material) -> Point:
    """The worker's word on what should have been taken out; without a worker only addresses are looked at."""
    if material.again is not None:
        found = material.again["secrets"]
        texts = [f"{case}: {where} holds a secret or a home folder" for case, where in found["found"]]
        if not found["looked_at"]:
            return Point(Outcome.NOT_CAPTURED, "nothing in which a secret could be: no environment and no request")
        good = f"{found['looked_at']:,} different environments, requests and reasons: no secret and no home folder"
        return verified_or(texts, good, found["looked_at"], "hold some", Ground.RECOMPUTED)
    leaks = []
    for record in {id(record.environment): record for record in material.records}.values():
        text = json.dumps([encoded(record.environment), encoded(record.request)])
        leaks += [f"{record.id} holds an address with a password"] if _USER_IN_ADDRESS.search(text) else []
    if leaks:
        return Point(Outcome.FINDING, listed(leaks))
    return Point(Outcome.NOT_COMPARABLE, f"secrets were not looked for here: {material.problem}")


def seeds(material: Material) -> Item:
    points = []
    if material.again is None:
        points.append(Point(Outcome.CAPTURED, f"seed of {counted(len(material.records), 'record')}"))
        points.append(Point(Outcome.NOT_COMPARABLE, f"inputs not made again here: {material.problem}"))
        return Item(8, "seeds and inputs", tuple(points))
    found = material.again["inputs"]
    late = found.get("late", 0)
    left_out = found["too_large"] + late + len(found["not_comparable"]) + found["not_recorded"]
    share = (found["cases"], found["cases"] + left_out)
    if found["different"]:
        texts = [f"{case}, rank {rank}" for case, rank in found["different"]]
        says = f"{len(texts)} of {found['made']:,} inputs come out differently: {listed(texts)}"
        points.append(Point(Outcome.FINDING, says, Ground.RECOMPUTED, share))
    elif found["made"]:
        says = f"{counted(found['made'], 'input')} of {counted(found['cases'], 'record')} made again; 0 differ"
        points.append(Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, share))
    if share[0] < share[1] or not share[1]:
        points.append(Point(Outcome.CAPTURED, f"seed of {counted(len(material.records), 'record')}"))
    if found["too_large"]:
        says = f"{counted(found['too_large'], 'record')} of larger inputs: not made again (--inputs-up-to)"
        points.append(Point(Outcome.NOT_COMPARABLE, says))
    if late:
        says = f"inputs of {counted(late, 'record')}: not begun within {RERUN_S:.0f} s (--rerun N has no limit)"
        points.append(Point(Outcome.CAPTURED, says))
    if found["not_comparable"]:
        texts = [f"{case}: {why}" for case, why in found["not_comparable"]]
        points.append(Point(Outcome.NOT_COMPARABLE, f"{counted(len(texts), 'record')}: {listed(texts)}"))
    if found["not_recorded"]:
        says = f"digests of inputs: {counted(found['not_recorded'], 'checked record')} without any (schema 2)"
        points.append(Point(Outcome.NOT_CAPTURED, says))
    return Item(8, "seeds and inputs", tuple(points))


def command(material: Material) -> Item:
    lacking = [one.id for one in material.records if not one.request.command_line]
    points = _presence(lacking, len(material.records), "command line, start and end of %s")
    points += _captured(material, {"user": "host.user", "launcher, job id and nodes": "launch.launcher"})
    points.append(exit_codes(material))
    points += resumptions(material)
    return Item(17, "command", _once(points))


def _presence(missing: list[str], total: int, what: str) -> list[Point]:
    """CAPTURED for what is there, NOT CAPTURED for what is missing; what has a %s for how many records."""
    points = []
    if total - len(missing):
        points.append(Point(Outcome.CAPTURED, what % counted(total - len(missing), "record")))
    if missing:
        says = f"{what % counted(len(missing), 'record')}: {listed(missing)}"
        points.append(Point(Outcome.NOT_CAPTURED, says))
    return points


def _captured(material: Material, wanted: Mapping[str, str]) -> list[Point]:
    """For every environment what it has of the wanted, by their dotted paths, and what it lacks, with the reason."""
    points = []
    for environment in material.environments:
        there = [name for name, path in wanted.items() if values_at(environment, path)]
        lacking = [(name, why_missing(environment, path)) for name, path in wanted.items() if name not in there]
        if there:
            points.append(Point(Outcome.CAPTURED, ", ".join(there)))
        if lacking:
            texts = [f"{name} ({why})" if why else name for name, why in lacking]
            points.append(Point(Outcome.NOT_CAPTURED, ", ".join(texts)))
    return points


def _once(points: Iterable[Point]) -> tuple[Point, ...]:
    """Equal points of several environments, once."""
    return tuple(dict.fromkeys(points))


def _brief(commit: object) -> str:
    return str(commit)[:12]
