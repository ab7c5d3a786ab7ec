"""Items "commit" and "kernels": which code the records are of, and what is kept of it beside them.

The worker asks git, compares sources with today's, and compiles the kernels of cases that it runs again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases.record.nccl_settings import contradiction
from cases.record.reading import contents
from cases.record.record import WHOLE_SINCE, Record, Status
from reports.table.compare import LIBRARY
from reports.table.text import counted
from symlab.evidence.audit.items import Outcome, Point, captured_or, contradicted
from symlab.evidence.audit.machine import presence, why_missing
from symlab.evidence.audit.material import Material, name_of
from symlab.evidence.audit.ptx import StoredCode
from symlab.evidence.audit.statistics import world_of

UNTRACKED_NAMED = 5
"""Maximum number of untracked files to name."""

_LIBRARIES = {"nccl": "NCCL", "nvshmem": "NVSHMEM", "torch": "PyTorch", "flashinfer": "flashinfer", "sglang": "SGLang"}
"""How the name of a library with its version begins, by the beginning of the algorithm's name."""


def commit(material: Material) -> Iterator[Point]:
    """The commit, and what differed from it."""
    for environment in material.environments:
        git = environment.get("git")
        if not isinstance(git, dict) or not git.get("commit"):
            why = why_missing(environment, "git")
            yield Point(Outcome.NOT_CAPTURED, f"commit: {why or 'the record does not say'}")
        elif git.get("dirty") is None:
            yield Point(Outcome.NOT_CAPTURED, f"commit {_brief(git['commit'])}, but not whether it was changed")
        elif not git["dirty"]:
            yield Point(Outcome.CAPTURED, f"commit {_brief(git['commit'])} ({git.get('branch', '')}), unchanged")
        else:
            yield from _dirt(material, git)
    yield from contradicted(
        f"{record.request.command or record.id}: {text}" for record in material.records for text in _state(record)
    )


def _state(record: Record) -> Iterator[str]:
    """What a record says of its tree that contradicts itself, or lacks though every record has it from WHOLE_SINCE
    on."""
    git = record.environment.git
    if record.schema >= WHOLE_SINCE and record.kernel is not None and not record.environment.sources:
        yield f"a record of schema {record.schema} has digests of sources, and this one has none"
    if not isinstance(git, dict) or not git.get("commit"):
        return
    dirt = [key for key in ("changed_files", "untracked_files", "diff_digest", "kept_diff") if git.get(key)]
    if not re.fullmatch("[0-9a-f]{7,64}", str(git["commit"])):
        yield f"{git['commit']!r:.40} is no commit's name"
    if type(git.get("dirty")) is not bool and record.schema >= WHOLE_SINCE:
        yield "it does not say whether its tree was changed, which every record does"
    elif git.get("dirty") is False and dirt:
        yield f"its tree is unchanged, and {', '.join(dirt)} say otherwise"


def _dirt(material: Material, git: Mapping[str, Any]) -> Iterator[Point]:
    """Yield what is known of the changes to a commit, and of the files that are in no commit."""
    if git.get("changed_files") != 0:
        yield _difference(material, git)
    if number := git.get("untracked_files"):
        names = git.get("untracked")
        known = list(map(str, names))[:UNTRACKED_NAMED] if isinstance(names, list) else []
        more = number - len(known) if type(number) is int else 0
        ends = f" and {more:,} more" if known and more > 0 else ""
        files = counted(number, "untracked file") if type(number) is int else "untracked files"
        named = f": {', '.join(known)}{ends}" if known else ""
        says = f"commit {_brief(git['commit'])}, with {files}, whose contents were not kept{named}"
        yield Point(Outcome.NOT_CAPTURED, says)


def _difference(material: Material, git: Mapping[str, Any]) -> Point:
    """Return what is known of the changes to files of a commit."""
    number = git.get("changed_files")
    files = counted(number, "changed file") if type(number) is int else "changed files"
    says = f"commit {_brief(git['commit'])}, with {files}"
    kept = git.get("kept_diff")
    if not isinstance(kept, dict):
        return Point(Outcome.NOT_CAPTURED, f"{says}; the changes themselves were not kept")
    name = str(kept.get("file"))
    # What a record names is a file of its own folder.
    found = [folder / name for folder in material.folders if name == Path(name).name and (folder / name).is_file()]
    if not found:
        return Point(Outcome.NOT_COMPARABLE, f"{says}, kept in {name}, which is not beside these records")
    if kept.get("digest") not in {f"sha256:{hashlib.sha256(contents(path)).hexdigest()}" for path in found}:
        return Point(Outcome.FINDING, f"{says}, kept in {name}: its digest is not the recorded one")
    cut = f"; {kept['left_out_bytes']} bytes of it were left out" if kept.get("left_out_bytes") else ""
    return Point(Outcome.CAPTURED, f"{says}, kept in {name}{cut}")


def _brief(name: object) -> str:
    return str(name)[:12]


def kernels(material: Material) -> Iterator[Point]:
    """What ran each case, by its digests, the same in all worlds, and as the PTX that is kept says."""
    yield from contradicted(f"{record.id}: {text}" for record in material.records for text in _run_by(record))
    with_kernel = [record for record in material.records if record.kernel is not None]
    if not with_kernel:
        yield Point(Outcome.DOES_NOT_APPLY, "no case was run by a kernel of ours")
        return
    lacking = [one.id for one in with_kernel if one.kernel and not (one.kernel.ptx_digest and one.kernel.source_digest)]
    yield from presence(lacking, len(with_kernel), "digests of sources and PTX of %s")
    yield from _one_code(with_kernel)
    yield _stored_ptx(material, with_kernel)


def _run_by(record: Record) -> Iterator[str]:
    """Whether a library or a kernel of ours ran it, which the case, the kernel and the library say each."""
    case, library, is_librarys = record.case, record.library, record.case.accumulator == LIBRARY
    ran = record.status in (Status.PASSED, Status.WRONG)
    if (library and not is_librarys) or (record.kernel and is_librarys):
        yield f"{case.name} is {'a library' if is_librarys else 'a kernel of ours'}, and {library or 'a kernel'} ran it"
    elif ran and not (library or record.kernel):
        yield f"{case.name} {record.status}, and the record does not say what ran it"
    begins = _LIBRARIES.get(case.algorithm.partition("/")[0])
    if is_librarys and library and begins is not None and not library.startswith(f"{begins} "):
        yield f"{case.name} is run by {begins}, and {library} is said to have run it"
    if told := contradiction(record):
        yield told


def _one_code(with_kernel: Sequence[Record]) -> Iterator[Point]:
    """Yield whether every world ran a case with the same code; with the same PTX where records are older than code
    digests, which are left out beside others. For another architecture it is another."""
    found: dict[tuple[str, str], list[Record]] = {}
    for one in with_kernel:
        assert one.kernel is not None
        if one.kernel.ptx_digest:
            found.setdefault((one.id, one.kernel.arch), []).append(one)
    compared: dict[str, int] = {}
    several: dict[str, list[str]] = {}
    for (case, arch), members in found.items():
        with_code = [one for one in members if one.kernel is not None and one.kernel.code_digest is not None]
        if len({world_of(one) for one in with_code or members}) < 2:
            continue
        what = "code (PTX without line information)" if with_code else "PTX"
        kernels_of = [one.kernel for one in with_code or members if one.kernel is not None]
        digests = {one.code_digest or one.ptx_digest for one in kernels_of}
        compared[what] = compared.get(what, 0) + 1
        if len(digests) > 1:
            several.setdefault(what, []).append(f"{case} ran {len(digests)} versions of it ({arch})")
    for what, count in sorted(compared.items()):
        good = f"each of {counted(count, 'case')} ran one {what} in all of its worlds"
        yield captured_or(several.get(what, []), good, count, f"cases ran several versions of their {what}")
    if not compared:
        nothing = "no case has the digest of its PTX from two worlds: nothing to compare"
        yield Point(Outcome.DOES_NOT_APPLY, nothing)


def _stored_ptx(material: Material, with_kernel: Sequence[Record]) -> Point:
    """Whether PTX files beside the records are what their names and the records say."""
    if not material.folders:
        says = "PTX: no folder of a command here, so its text is not kept beside the records"
        return Point(Outcome.NOT_CAPTURED, says)
    bad: list[str] = []
    codes: dict[str, StoredCode | None] = {}
    for path in sorted(path for folder in material.folders for path in (folder / "ptx").glob("*.ptx")):
        codes.setdefault(path.stem, None)
        try:
            data = contents(path)
            if hashlib.sha256(data).hexdigest() != path.stem:
                bad.append(f"ptx/{path.name} is not what its name says")
            else:
                codes[path.stem] = codes[path.stem] or StoredCode(data)
        except ValueError as error:
            bad.append(f"ptx/{path.name}: {error}")
    folders = {name_of(folder, document): folder for folder, document in material.commands.items()}
    wanted = set[str]()
    for one in with_kernel:
        if one.kernel is None or not one.kernel.ptx_digest:
            continue
        name = one.kernel.ptx_digest.removeprefix("sha256:")
        wanted.add(name)
        folder = folders.get(one.request.command)
        if name not in codes or (folder is not None and not (folder / "ptx" / f"{name}.ptx").is_file()):
            bad.append(f"ptx/{name}.ptx is missing{f' in {folder.name}' if folder is not None else ''}")
        if code := codes.get(name):
            bad += [f"{one.id}: ptx/{name[:12]}..: {what}" for what in code.contradicted(one.kernel)]
    if not codes and not wanted:
        return Point(Outcome.NOT_CAPTURED, "PTX: no file of it, and no record has its digest")
    good = f"{counted(len(codes), 'PTX file')}: each is what its name and the records say, none is missing"
    return captured_or(list(dict.fromkeys(bad)), good, len(with_kernel), "records and their PTX")
