"""symlab audit, sign, bundle, history, and `published`, which makes and checks what the project publishes."""

from __future__ import annotations

from pathlib import Path

import click

from reports.commands import EXIT_CODES, output_option, read_records, takes_as, takes_records
from reports.record import bundle as bundles
from reports.table.text import counted
from symlab.evidence.audit.command import AuditOptions, Progress
from symlab.evidence.audit.command import run as audited
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.signatures import sign as signed
from symlab.evidence.audit.statistics import parse_band


@click.command("audit", epilog="Exit codes: 0 verified; 1 a finding; 2 the request is wrong, or not auditable.")
@takes_records
@click.option(
    "--band", default="2%", metavar="PERCENT", show_default=True, help="Maximum change of a time that does not matter."
)
@click.option(
    "--gate",
    type=click.Choice(tuple(map(str, Gate))),
    help="Of two sets: the findings that decide the exit code.  [default: any]",
)
@click.option(
    "--up-to",
    metavar="SIZE",
    help="Of one set: maximum size of cases that are compared with the reference; 0 for none.  [default: 1M]",
)
@click.option(
    "--code",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A folder whose files may be run for records, too; repeatable.",
)
@click.option(
    "--rerun",
    metavar="N|all",
    help="Of one set: number of cases to run again in the simulator.  [default: all that begin within 20 s]",
)
@click.option("--seed", type=click.IntRange(0), help="The seed that chooses these cases.  [default: a random one]")
@click.option(
    "--signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of one set: names and keys that may vouch, in the form that ssh-keygen takes.",
)
@output_option("Write the result, too: a .html (the report with the audit), .md or .json.")
@takes_as(AuditOptions)
def audit(options: AuditOptions) -> int:
    """Check records against a list of items, or compare two sets.

    One RECORDS (a record file, a folder or a bundle) is checked against the list of items. Two of them,
    BEFORE and AFTER, are compared.
    """
    return audited(options)


@click.command("sign", epilog=EXIT_CODES)
@click.argument("place", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="An SSH key: a private key's file, or the .pub of one that an agent holds.",
)
def sign(place: Path, key: Path) -> None:
    """Vouch for a folder of records with an SSH key.

    FOLDER is the folder of a command that ended, or reports/published. symlab audit --signers says who signed. A
    signature proves who vouches for the records as they are, and not that they are true.
    """
    print(signed(place, key))


@click.command("history", epilog=EXIT_CODES)
@takes_records
@click.option("--band", default="2%", metavar="PERCENT", show_default=True, help="Maximum change that is not named.")
@click.option("--changed", "is_changed", is_flag=True, help="Show only cases whose times or data changed.")
def history(records: tuple[str, ...], band: str, is_changed: bool) -> None:
    """Show how cases changed over commits and libraries.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz), of any number of commands. Each
    case is a series of worlds in order of time, with what changed from day to day.
    """
    from symlab.evidence.history.history import history as of

    print(of(read_records(records), parse_band(band)).text(is_changed), end="")


@click.command("published", epilog=EXIT_CODES)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path(__file__).resolve().parents[2],
    show_default=True,
    metavar="DIR",
    help="The project's folder.",
)
@click.option("--check", is_flag=True, help="Write nothing; name the files that differ from what the bundles give.")
@click.option("--audit", "is_audit", is_flag=True, help="Write nothing; audit all that is published.")
def published(root: Path, check: bool, is_audit: bool) -> int:
    """Make the tables, figures and README sections of what is published."""
    if is_audit:
        from symlab.evidence.audit.published import audit_published

        return audit_published(root, Progress())
    from symlab.evidence.published import refresh

    refresh(root, is_check=check)
    return 0


@click.command("bundle", epilog=EXIT_CODES)
@takes_records
@output_option(f"The bundle's name, which ends in {bundles.SUFFIX}.", required=True)
def bundle(records: tuple[str, ...], output: Path) -> None:
    """Pack records into one compressed file.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz). Every command that takes RECORDS
    reads the bundle. Signatures are of folders: sign the one that the bundle lies in.
    """
    found = read_records(records)
    size_bytes = bundles.write(found, output)
    print(f"{output}: {counted(len(found), 'record')}, {size_bytes} bytes")
