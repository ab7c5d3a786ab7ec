"""python -m symlab.evidence.prove RECORDS -o kernels/proven/MACHINE.json: from records of checked cases to proofs.

Only kernels count, not baselines. A case that was neither PASSED nor REFUSED, or passed unchecked, is no proof: it is
named, and nothing is written.

Records that have code digests are held to this checkout: each kernel is compiled here for each of its cases, and a
record of other code is refused. So the proof can have the digest of the kernel's whole code. Older records only have
the digests of their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cases.code_digest import code_digest
from cases.record.record import SHARE_GPUS, Record, Status
from kernels.catalogue import SPECS, find
from kernels.compile import executable
from kernels.matrix.proofs import SHARED, SIMULATOR, Proof, Tally, written
from kernels.matrix.variants import code_of
from reports.record.bundle import read
from reports.record.writing import write_file
from reports.table.compare import device_text
from reports.table.text import counted
from runner.request.schema import Schema
from symlab.command import carry_out, leave


@click.command(epilog="Exit codes: 0 written; 2 the request is wrong, or the records prove nothing.")
@click.argument("records", nargs=-1, required=True, metavar="RECORDS...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="kernels/proven/MACHINE.json",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=Path(Schema().cache_dir),
    show_default=True,
    metavar="DIR",
    help="Compiled kernels.",
)
def prove(records: tuple[Path, ...], output: Path, cache: Path) -> None:
    """Write into kernels/proven/ where kernels ran and gave correct results; symlab kernels shows it.

    RECORDS are record files, folders of them or bundles, of one machine.
    """
    try:
        proof = proof_of(read(records), cache.expanduser())
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    output.parent.mkdir(parents=True, exist_ok=True)
    write_file(output, written(proof).encode())
    passed, refused = (sum(getattr(one, name) for one in proof.specs.values()) for name in ("passed", "refused"))
    ended = f"{counted(passed, 'case')} passed, {refused} refused"
    print(f"{output}: {proof.machine}, {counted(len(proof.specs), 'kernel')}, {ended}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line. Returns the exit code: 2, in one line on stderr, if the records prove nothing."""
    return carry_out("symlab.evidence.prove:prove", "python -m symlab.evidence.prove", arguments)


def proof_of(records: Sequence[Record], cache_dir: Path) -> Proof:
    """Return what one machine's records prove of our kernels, each case once.

    Raises ValueError if they prove nothing, or not of the code that this checkout compiles to; RuntimeError if a kernel
    can't be compiled here.
    """
    names = {spec.name for spec in SPECS}
    ours = [record for record in records if _name(record) in names]
    if not ours:
        raise ValueError("no case of a kernel of the catalogue among these records")
    for record in ours:
        if record.status not in (Status.PASSED, Status.REFUSED):
            raise ValueError(f"{record.id} is {record.status}: that proves nothing; run it again, or leave it out")
        if record.status is Status.PASSED and not record.verified:
            raise ValueError(f"{record.id} was not checked (check=false): that proves nothing; leave it out")
    latest = max(ours, key=lambda record: record.ended)
    return Proof(
        machine=_machine(ours),
        date=latest.ended[:10],
        commit=_commit(latest),
        specs={
            name: _tally([one for one in ours if _name(one) == name], cache_dir)
            for name in sorted(set(map(_name, ours)))
        },
    )


def _name(record: Record) -> str:
    return record.case.name


def _tally(records: Sequence[Record], cache_dir: Path) -> Tally:
    """Return the tally of one kernel's records."""
    passed = {record.id: record for record in records if record.status is Status.PASSED}
    refused = {record.id for record in records} - set(passed)
    digests = {record.kernel.source_digest for record in passed.values() if record.kernel is not None}
    if len(digests) > 1:
        raise ValueError(f"{_name(records[0])} ran from {len(digests)} versions of its sources: give records of one")
    return Tally(
        passed=len(passed),
        refused=len(refused),
        world_sizes=tuple(sorted({record.case.world_size for record in passed.values()})),
        sources=next(iter(digests)).removeprefix("sha256:") if digests else "-",
        code=_code(list(passed.values()), cache_dir),
    )


def _code(records: Sequence[Record], cache_dir: Path) -> str | None:
    """Return the code of the kernel that ran these cases, or None if a record does not say.

    Raises ValueError if a case ran code that this checkout does not compile to.
    """
    if not records or any(one.kernel is None or one.kernel.code_digest is None for one in records):
        return None
    spec = find(_name(records[0]))
    here: dict[tuple[str, str], str] = {}
    for record in records:
        assert record.kernel is not None
        ran, arch = str(record.kernel.code_digest), record.kernel.arch
        case = record.case
        key = spec.variant(case), arch
        if key not in here:
            here[key] = code_digest(executable(spec, case, arch, cache_dir).ptx)
        if ran != here[key]:
            raise ValueError(
                f"{record.id} ran other code ({ran[:19]}) than this checkout compiles to ({here[key][:19]}): prove it "
                f"in a checkout of its commit, {_commit(record)}, with its compiler, {record.kernel.compiler}"
            )
    return code_of(spec, cache_dir).code


def _machine(records: Sequence[Record]) -> str:
    """ "simulator", or "4 x NVIDIA H200": the most GPUs that a case ran on; "1 x NVIDIA H200, shared by ranks" where
    ranks could have the same one."""
    ran = [record for record in records if record.fabric is not None]
    found = {SIMULATOR if one.fabric and one.fabric.simulated else device_text(one) for one in ran}
    if len(found) != 1:
        raise ValueError(f"records of one machine are wanted, and these are of {' and '.join(sorted(found)) or 'none'}")
    name = found.pop()
    if name == SIMULATOR:
        return name
    if any(record.fabric and record.fabric.settings.get(SHARE_GPUS) for record in ran):
        gpus = max(len(record.environment.gpus or ()) for record in ran)
        return f"{gpus} x {name}, {SHARED}"
    return f"{max(record.case.world_size for record in ran)} x {name}"


def _commit(record: Record) -> str:
    """The commit that the latest case ran from; with changes beside it, it says so."""
    git = record.environment.git
    if not git or not git.get("commit"):
        return "unknown"
    return f"{git['commit']}{' with changes' if git.get('dirty') else ''}"


if __name__ == "__main__":
    leave(main)
