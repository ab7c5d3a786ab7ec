"""python -m runner.prove RECORDS -o kernels/proven/MACHINE.json: from records of checked cases to what is proven.

Only kernels count, not baselines. A case that was neither PASSED nor REFUSED, or passed unchecked, is no proof: it is
named, and nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kernels.catalogue import SPECS
from kernels.matrix.proofs import SIMULATOR, Proof, Tally, written
from reports.record.bundle import read, write_file
from reports.record.record import Record, Status
from reports.table.compare import device_text


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Gives the exit code: 0 written, 2 the request is wrong or the records prove nothing, in one line on stderr."""
    parser = _Parser(
        prog="python -m runner.prove",
        description="Say in kernels/proven/ where kernels ran and gave what they should: python -m kernels shows it.",
        epilog="exit codes: 0 written; 2 the request is wrong, or the records prove nothing",
    )
    parser.add_argument(
        "records", nargs="+", type=Path, metavar="RECORDS", help="files, folders or bundles, one machine's"
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="kernels/proven/MACHINE.json")
    try:
        options = parser.parse_args(arguments)
        proof = proof_of(read(options.records))
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_file(options.output, written(proof).encode())
    except ValueError as error:
        print(f"symlab: error: {error}", file=sys.stderr)
        return 2
    passed, refused = (sum(getattr(one, name) for one in proof.specs.values()) for name in ("passed", "refused"))
    print(f"{options.output}: {proof.machine}, {len(proof.specs)} kernels, {passed} cases passed, {refused} refused")
    return 0


def proof_of(records: Sequence[Record]) -> Proof:
    """What one machine's records prove of our kernels, each case once. ValueError where they prove nothing."""
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
        specs={name: _tally([one for one in ours if _name(one) == name]) for name in sorted(map(_name, ours))},
    )


def _name(record: Record) -> str:
    return record.case.name


def _tally(records: Sequence[Record]) -> Tally:
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
    )


def _machine(records: Sequence[Record]) -> str:
    """ "simulator", or "4 x NVIDIA H200": the most GPUs that a case ran on."""
    ran = [record for record in records if record.fabric is not None]
    found = {SIMULATOR if one.fabric and one.fabric.simulated else device_text(one) for one in ran}
    if len(found) != 1:
        raise ValueError(f"records of one machine are wanted, and these are of {' and '.join(sorted(found)) or 'none'}")
    name = found.pop()
    most = max(record.case.world_size for record in ran)
    return name if name == SIMULATOR else f"{most} x {name}"


def _commit(record: Record) -> str:
    """The commit that the latest case ran from; with changes beside it, it says so."""
    git = record.environment.git
    if not git or not git.get("commit"):
        return "unknown"
    return f"{git['commit']}{' with changes' if git.get('dirty') else ''}"


if __name__ == "__main__":
    sys.exit(main())
