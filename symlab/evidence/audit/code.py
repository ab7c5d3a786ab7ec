"""Items "commit" and "kernels": which code the records are of, and what is kept of it beside them.

The worker asks git, compares sources with today's, and compiles the kernels of cases that it runs again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cases.code_digest import code_digest
from cases.gathered import gathered
from cases.record.nccl_settings import contradiction
from cases.record.reading import contents
from cases.record.record import WHOLE_SINCE, KernelInfo, Record, Status
from reports.table.compare import LIBRARY
from reports.table.text import counted
from symlab.evidence.audit.items import Outcome, Point, held, listed
from symlab.evidence.audit.material import Material, name_of
from symlab.evidence.audit.statistics import world_of

UNTRACKED_NAMED = 5
"""Maximum number of untracked files to name."""

_LIBRARIES = {"nccl": "NCCL", "nvshmem": "NVSHMEM", "torch": "PyTorch", "flashinfer": "flashinfer", "sglang": "SGLang"}
"""How the name of a library with its version begins, by the beginning of the algorithm's name."""

_ENTRIES = re.compile(r"\.entry[ \t]+([\w$%]+)")
_MULTIMEM = re.compile(r"\bmultimem\.(?:ld_reduce|st|red)\b[\w.:]*")
"""Instructions, and not the name of a file, such as multimem.py in a line table; older records have that, too."""


def commit(material: Material) -> Iterator[Point]:
    """The commit, and what differed from it."""
    states = (f"{one.request.command or one.id}: {text}" for one in material.records for text in _state(one))
    gits: list[dict[str, Any]] = [
        git if isinstance(git := one.get("git"), dict) else {} for one in material.environments
    ]
    commits = dict.fromkeys(str(git["commit"])[:12] for git in gits if git.get("commit"))
    kept = (fault for git in gits for fault in _kept_diff(material, git))
    yield from held((*states, *kept), f"commit {listed(commits)}" if commits else "")
    for git in gits:
        if not git.get("commit"):
            yield Point(Outcome.NOT_CAPTURED, "commit: a record does not say")
        elif git.get("dirty") is None:
            yield Point(Outcome.NOT_CAPTURED, f"whether commit {str(git['commit'])[:12]} was changed")
        elif git["dirty"] and (git.get("untracked_files") or not isinstance(git.get("kept_diff"), dict)):
            yield Point(Outcome.NOT_CAPTURED, f"commit {str(git['commit'])[:12]}, whose {_dirt(git)} were not kept")
        elif git["dirty"] and not _kept_in(material, git):
            says = f"commit {str(git['commit'])[:12]}, with changes that are not beside these records"
            yield Point(Outcome.NOT_COMPARABLE, says)


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


def _dirt(git: Mapping[str, Any]) -> str:
    """The files that differ from a commit and of which a record keeps no content, in words."""
    names, number = git.get("untracked"), git.get("untracked_files")
    such = f", such as {', '.join(map(str, names[:UNTRACKED_NAMED]))}" if isinstance(names, list) and names else ""
    is_kept = isinstance(git.get("kept_diff"), dict) or git.get("changed_files") == 0
    parts = [] if is_kept else [f"changed files ({git.get('changed_files', 'any number')})"]
    return " and ".join([*parts, *([f"untracked files ({number}{such})"] if number else [])])


def _kept_in(material: Material, git: Mapping[str, Any]) -> list[Path]:
    """The files beside the records that have the changes to a commit. What a record names is a file of its own
    folder."""
    name = str(git["kept_diff"].get("file"))
    return [folder / name for folder in material.folders if name == Path(name).name and (folder / name).is_file()]


def _kept_diff(material: Material, git: Mapping[str, Any]) -> Iterator[str]:
    """Whether the changes to a commit that a record names are those beside it."""
    kept = git.get("kept_diff")
    found = _kept_in(material, git) if isinstance(kept, dict) else ()
    if found and git["kept_diff"].get("digest") not in {f"sha256:{sha256(contents(one)).hexdigest()}" for one in found}:
        yield f"the changes that are kept in {found[0].name} have another digest than the recorded one"


def kernels(material: Material) -> Iterator[Point]:
    """What ran each case, by its digests, the same in all worlds, and as the PTX that is kept says."""
    with_kernel = [record for record in material.records if record.kernel is not None]
    run_by = (f"{record.id}: {text}" for record in material.records for text in _run_by(record))
    good = f"code of {counted(len(with_kernel), 'record')}: one in all worlds of a case, and as PTX that is kept says"
    sentences = (*run_by, *_several_codes(with_kernel), *_stored_ptx(material, with_kernel))
    yield from held(sentences, good if with_kernel else "")
    lacking = [one.id for one in with_kernel if one.kernel and not (one.kernel.ptx_digest and one.kernel.source_digest)]
    if lacking:
        says = f"digests of sources and PTX of {counted(len(lacking), 'record')}: {listed(lacking)}"
        yield Point(Outcome.NOT_CAPTURED, says)
    if with_kernel and not material.folders:
        yield Point(Outcome.NOT_CAPTURED, "PTX: no folder of a command here, so its text is not beside the records")


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


def _several_codes(with_kernel: Sequence[Record]) -> Iterator[str]:
    """The cases that worlds ran by different code for one architecture; by different PTX, where no record of it is new
    enough for a code digest."""
    found = gathered(((one.id, one.kernel.arch), one) for one in with_kernel if one.kernel and one.kernel.ptx_digest)
    for (case, arch), members in found.items():
        kernels_of = [one.kernel for one in members if one.kernel is not None]
        codes = {one.code_digest for one in kernels_of} - {None}
        digests = codes or {one.ptx_digest for one in kernels_of}
        if len(digests) > 1 and len(set(map(world_of, members))) > 1:
            yield f"{case} ran {len(digests)} versions of its {'code' if codes else 'PTX'} ({arch})"


def _stored_ptx(material: Material, with_kernel: Sequence[Record]) -> Iterator[str]:
    """What PTX files beside the records contradict: their names, or the records."""
    codes: dict[str, StoredCode | None] = {}
    for path in sorted(path for folder in material.folders for path in (folder / "ptx").glob("*.ptx")):
        codes.setdefault(path.stem, None)
        try:
            data = contents(path)
            if sha256(data).hexdigest() != path.stem:
                yield f"ptx/{path.name} is not what its name says"
            else:
                codes[path.stem] = codes[path.stem] or StoredCode(data)
        except ValueError as error:
            yield f"ptx/{path.name}: {error}"
    folders = {name_of(folder, document): folder for folder, document in material.commands.items()}
    for one in with_kernel if material.folders else ():
        if one.kernel is None or not one.kernel.ptx_digest:
            continue
        name = one.kernel.ptx_digest.removeprefix("sha256:")
        folder = folders.get(one.request.command)
        if name not in codes or (folder is not None and not (folder / "ptx" / f"{name}.ptx").is_file()):
            yield f"ptx/{name}.ptx is missing{f' in {folder.name}' if folder is not None else ''}"
        if code := codes.get(name):
            yield from (f"{one.id}: ptx/{name[:12]}..: {what}" for what in code.contradicted(one.kernel))


class StoredCode:
    """What one PTX file says."""

    def __init__(self, data: bytes) -> None:
        """data: the file's contents. ValueError if it is no UTF-8."""
        ptx = data.decode("utf-8")
        self._digest = code_digest(ptx)
        self._entries = frozenset(_ENTRIES.findall(ptx))
        self._multimem = tuple(sorted(set(_MULTIMEM.findall(ptx))))

    def contradicted(self, kernel: KernelInfo) -> Iterator[str]:
        """Yield what a kernel's record says and the file does not."""
        if kernel.code_digest is not None and kernel.code_digest != self._digest:
            yield "its code has another digest than the recorded one"
        if kernel.entry not in self._entries:
            yield f"it has no entry {kernel.entry}"
        if tuple(sorted(filter(_MULTIMEM.fullmatch, kernel.multimem))) != self._multimem:
            yield "its multimem instructions are not the recorded ones"
