"""The kernels that published records name: their PTX, and how each case launched it, kept beside the records.

Later sources give other code than those of the recorded commit, and it's the recorded code that was timed. So it is
compiled once by the code that ran, when a set is published, and kept: one file of a machine, kernels.json.xz. That its
digests are those of the records is tested (tests/symlab/speed), so the file can be made again in a checkout of the
commit, and not be changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.case import UNIFORM, Case
from cases.record.record import Record
from kernels.catalogue import find
from kernels.compile import executable
from kernels.spec import KernelSpec, Parameter, Workspace
from memory.fabric import Executable, Launch
from reports.record.writing import write_file
from runner.request_error import RequestError
from symlab.speed.predict.case_work import CaseWork

PROFILES = "profiles.json.xz"
"""Beside them: the work of each case, by the record's id and the digest of its PTX (evidence.profile_key)."""

FORM, PROFILES_FORM = 1, 3
"""The numbers of the files' forms."""

MOST_BYTES = 1 << 28
"""Maximum size of the text: 108 kernels have 6 MB."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """How a case launched its kernel. digest: of the PTX; blocks and threads: grid and block in x; parameters: kind and
    buffer, in order; workspaces: what the kernel keeps in symmetric memory."""

    case: Case
    digest: str
    blocks: int
    threads: int
    parameters: tuple[Parameter, ...]
    workspaces: tuple[Workspace, ...]

    def spec(self) -> KernelSpec:
        """Return what a run has to know of the kernel. It is bound and launched by it, and can't be built."""
        case = self.case
        return KernelSpec(
            op=case.op,
            algorithm=case.algorithm,
            summary=f"as recorded, {self.digest[:19]}",
            dtypes=(case.dtype,),
            accumulators=(case.accumulator,),
            reductions=(case.reduction,),
            placements=(case.placement,),
            needs_multicast=False,
            fold="rank_order",
            parameters=self.parameters,
            workspaces=lambda _: self.workspaces,
            launch=lambda _: Launch(self.blocks, self.threads),
            build=_not_built,
            files=(),
        )


@dataclass(frozen=True, slots=True)
class RecordedKernels:
    """The kernels of one commit: PTX and entries by digest, launches by the key of a record (id and digest)."""

    commit: str
    arch: str
    texts: Mapping[str, str]
    entries: Mapping[str, str]
    launches: Mapping[str, RecordedLaunch]

    def executable(self, launch: RecordedLaunch) -> Executable:
        """Return the kernel of a launch as the simulator takes it."""
        text, entry = self.texts[launch.digest], self.entries[launch.digest]
        return Executable(launch.case.name, entry, self.arch, text, launch.digest)


def read(path: Path) -> RecordedKernels:
    """Return what a file holds. ValueError, naming it, if it holds anything else, or PTX of another digest."""
    with _named(path, "recorded kernels"):
        document = unpacked(path)
        if document["form"] != FORM:
            raise ValueError(f"its form is {document['form']}, this version reads {FORM}")
        texts = {digest: one["ptx"] for digest, one in document["kernels"].items()}
        for digest, text in texts.items():
            if digest_of(text) != digest:
                raise ValueError(f"the PTX under {digest[:19]} has another digest")
        return RecordedKernels(
            commit=document["commit"],
            arch=document["arch"],
            texts=texts,
            entries={digest: one["entry"] for digest, one in document["kernels"].items()},
            launches={key: _launch(one) for key, one in document["launches"].items()},
        )


def read_profiles(path: Path) -> dict[str, CaseWork]:
    """Return the profiles in a file by profile_key; {} if there is no file, or one of another form, which is made anew.
    ValueError, naming it, if it holds anything else."""
    if not path.is_file():
        return {}
    with _named(path, "profiles"):
        document = unpacked(path)
        found = document["profiles"] if document["form"] == PROFILES_FORM else {}
        return {key: CaseWork.of(one) for key, one in found.items()}


def write_profiles(found: Mapping[str, CaseWork], path: Path) -> None:
    """Write profiles, compressed: the same ones give the same bytes."""
    write({"form": PROFILES_FORM, "profiles": {key: one.document() for key, one in found.items()}}, path)


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write a document, compressed: the same one gives the same bytes."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    write_file(path, lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def unpacked(path: Path) -> Any:
    """Return the document of a compressed file. ValueError or LZMAError if it holds none."""
    unpacker = lzma.LZMADecompressor()
    text = unpacker.decompress(path.read_bytes(), MOST_BYTES)
    if not unpacker.eof:
        raise ValueError(f"more than {MOST_BYTES:,} bytes of text, or cut short")
    return json.loads(text)


@contextlib.contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    """Within, whatever is wrong with a file is a ValueError that names it."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a file of {what} ({error})") from error


def compiled(records: Sequence[Record], cache_dir: Path) -> dict[str, Any]:
    """Compile the kernels that records name; return the document of a file of recorded kernels. cache_dir: where
    compiled kernels are kept.

    RequestError if the records are of several commits, or ran other code than is compiled here; RuntimeError if a
    kernel can't be compiled.
    """
    commits = {str((record.environment.git or {}).get("commit") or "unknown") for record in records}
    if len(commits) > 1:
        raise RequestError(f"the records are of several commits ({', '.join(sorted(commits))}): a set is of one")
    (commit,), (arch,) = commits, {record.kernel.arch for record in records if record.kernel is not None}
    kernels, launches = {}, {}
    for record in records:
        assert record.kernel is not None
        spec = find(record.case.name)
        made = executable(spec, record.case, arch, cache_dir)
        if made.digest != record.kernel.ptx_digest:
            raise RequestError(
                f"{record.id} ran other code than is compiled here: do it in a checkout of its commit, {commit[:12]}, "
                f"with its compiler, {record.kernel.compiler}"
            )
        launch, spaces = spec.launch(record.case), spec.workspaces(record.case)
        kernels[made.digest] = {"entry": made.entry, "ptx": made.ptx}
        launches[f"{record.id} {made.digest}"] = {
            "case": _values_of(record.case),
            "digest": made.digest,
            "blocks": launch.grid[0],
            "threads": launch.block[0],
            "parameters": [[parameter.kind, parameter.of] for parameter in spec.parameters],
            "workspaces": [[space.name, space.numel, space.dtype, space.zeroed, space.fill.hex()] for space in spaces],
        }
    return {"form": FORM, "commit": commit, "arch": arch, "kernels": kernels, "launches": launches}


def digest_of(text: str) -> str:
    """Return the digest of PTX as records have it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _values_of(case: Case) -> dict[str, Any]:
    """Return the fields of a case, but for those that few cases have: nothing is timed under stress."""
    left_out = {"stress", *(("counts",) if case.counts == UNIFORM else ()), *(() if case.gemm else ("gemm",))}
    return {name: getattr(case, name) for name in Case.__slots__ if name not in left_out}


def _launch(one: Mapping[str, Any]) -> RecordedLaunch:
    workspaces = tuple(
        Workspace(name, numel, dtype, zeroed, bytes.fromhex(fill))
        for name, numel, dtype, zeroed, fill in one["workspaces"]
    )
    return RecordedLaunch(
        Case(**one["case"]),
        one["digest"],
        one["blocks"],
        one["threads"],
        tuple(Parameter(kind, of) for kind, of in one["parameters"]),
        workspaces,
    )


def _not_built(case: Case) -> object:
    raise ValueError(f"{case.name} is here as it was compiled for a record, and is not built again")
