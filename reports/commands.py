"""The commands that look at records, as click objects; `reports` is the group of them that `python -m reports` runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cases.record.record import Record
from reports.audit.command import FORMATS as AUDIT_FORMATS
from reports.audit.command import AuditOptions, Progress, rerun_of, size_of
from reports.audit.command import run as audited
from reports.audit.gate import Gate
from reports.audit.statistics import parse_band
from reports.audit.worker import Wanted
from reports.numerics import study as studies
from reports.record import bundle as bundles
from reports.record.seal import digests_under
from reports.table import ratios
from reports.table import table as tables
from reports.table.text import counted, csv_of, json_of
from reports.table.unfinished import unfinished

FORMATS = ("text", "markdown", "csv", "json")

KINDS = ("curves", "distribution", "numerics")
"""What `figure` draws, as reports.figures knows it."""

CONSUMERS = ("nccl", "vllm", "sglang")
"""Whose tables `export` makes, as reports.export knows them."""

Function = TypeVar("Function", bound=Callable[..., Any])

EXIT_CODES = "Exit codes: 0 done; 2 the request is wrong, or a file can't be read or written; 130 Ctrl-C."


def _takes_records(function: Function) -> Function:
    """Add what every command has that reads records, see _read."""
    with_uri = click.option(
        "--mlflow",
        "uri",
        metavar="URI",
        help="Read the records from MLflow: sqlite:///mlflow.db, or the http://... of a server. RECORDS are then ids "
        "of runs, or ids or names of experiments.",
    )(function)
    return click.argument(
        "records", nargs=-1, required=True, metavar="RECORDS...", type=click.Path(), callback=_without_pages
    )(with_uri)


def _without_pages(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Several places without pages among them: `symlab html` writes one beside a folder, and `records/*` names both."""
    pages = [place for place in given if place.endswith(".html") and Path(place).is_file()]
    kept = tuple(place for place in given if place not in pages)
    if not pages or not kept:
        return given
    rest = f" and {len(pages) - 1} more" if len(pages) > 1 else ""
    print(f"symlab: left out {pages[0]}{rest}: a page holds no records", file=sys.stderr)
    return kept


def _output(help: str, **more: Any) -> Callable[[Function], Function]:
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help=help, **more)


def _read(records: tuple[str, ...], uri: str | None) -> list[Record]:
    """The records that a command line names, from files or from MLflow."""
    if uri is None:
        found = bundles.read(records)
        gc.freeze()  # they stay to the end: no search for cycles looks at them
        return found
    from reports.tracked import fetch

    return fetch(uri, records)


def _say_unfinished(records: tuple[str, ...], uri: str | None, found: Sequence[Record]) -> None:
    """Say on standard error of which commands cases are missing."""
    for line in unfinished(records, found) if uri is None else ():
        print(f"symlab: {line}", file=sys.stderr)


@click.group("reports", no_args_is_help=False, epilog=EXIT_CODES)
def reports() -> None:
    """Look at records again: tables, figures, bundles, audits, what is published.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz).
    """


@reports.command("table", epilog=EXIT_CODES)
@_takes_records
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="csv and json have all values, unrounded, and the refused cases, too.",
)
@click.option("--wide", is_flag=True, help="A line a size, a column an algorithm (text and markdown).")
@click.option(
    "--ratios",
    "is_ratios",
    is_flag=True,
    help="Our best time over the best library's: a line a size, a column a number of ranks.",
)
def table(records: tuple[str, ...], uri: str | None, form: str, wide: bool, is_ratios: bool) -> None:
    """Print the table that a run ends with.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz). Several worlds of one case are
    one line.
    """
    found = _read(records, uri)
    _say_unfinished(records, uri, found)
    if wide and is_ratios:
        raise ValueError("--wide and --ratios are two tables, give one of them")
    if form in ("csv", "json"):
        if wide:
            raise ValueError(f"--wide is for people; {form} has a line for each case")
        lines = ratios.values(found) if is_ratios else tables.values(found)
        print(csv_of(lines) if form == "csv" else json_of(lines), end="")
    elif is_ratios:
        print(ratios.markdown(found) if form == "markdown" else f"{ratios.text(found)}\n", end="")
    else:
        if wide and all(record.timing is None for record in found):
            print("symlab: --wide lays out times, and none of these records has one: the usual table", file=sys.stderr)
        shown = f"{tables.console_table(found, is_wide=wide)}\n" if form == "text" else tables.markdown(found, wide)
        print(shown, end="")


@reports.command("figure", epilog=EXIT_CODES)
@_takes_records
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="curves: time and bus bandwidth over bytes; distribution: samples against their median; numerics: errors over "
    "bytes.",
)
@_output("The figure's name, which ends in .svg or .png.", required=True)
def figure(records: tuple[str, ...], uri: str | None, kind: str, output: Path) -> None:
    """Draw times and bandwidths, samples, or errors over sizes.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz). Each job is a row.
    """
    found = _read(records, uri)
    from reports.figures import draw

    draw(found, output, kind)
    print(f"{output}: written")


@reports.command("html", epilog=EXIT_CODES)
@_takes_records
@_output(
    "The report's name, which ends in .html.  [default: NAME.html beside the records; of several places, report.html "
    "here]"
)
@click.option("--title", default="", help="The page's title.  [default: the ops and the machine]")
def html(records: tuple[str, ...], uri: str | None, output: Path | None, title: str) -> None:
    """Write one HTML file with tables, figures and environment.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz).
    """
    if output is not None:
        if output.suffix not in (".html", ".htm"):
            raise ValueError(f"{output}: a report's name ends in .html")
        bundles.can_be_written(output)
    found = _read(records, uri)
    from reports.html import page
    from reports.html.page_path import page_path

    output = output or page_path(records if uri is None else ())
    sealed = digests_under(records) if uri is None else {}
    data = page(found, title, sealed=sealed).encode("utf-8")
    bundles.write_file(output, data)
    print(f"{output}: {counted(len(found), 'record')}, {len(data)} bytes")


@reports.command("study", epilog=EXIT_CODES)
@_takes_records
@click.option("--format", "form", type=click.Choice(("text", "markdown")), default="text", show_default=True)
@_output("Draw the curves, too: a name that ends in .svg or .png.")
def study(records: tuple[str, ...], uri: str | None, form: str, output: Path | None) -> None:
    """Print errors over world sizes, for each accumulator.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz).
    """
    found = _read(records, uri)
    curves = studies.studied(found, least=2)
    if not curves:
        raise ValueError("none of these records is of a sum that was checked on two world sizes or more: no curve")
    if form == "markdown":
        print(studies.markdown(curves), end="")
    else:
        print(studies.here(curves))
    if output is not None:
        from reports.figures import draw_study

        draw_study(curves, found, output)
        print(f"{output}: written")


@reports.command("bundle", epilog=EXIT_CODES)
@_takes_records
@_output(f"The bundle's name, which ends in {bundles.SUFFIX}.", required=True)
def bundle(records: tuple[str, ...], uri: str | None, output: Path) -> None:
    """Pack records into one compressed file.

    Signatures of the records go along. RECORDS are record files, folders of them (at any depth), or bundles
    (*.jsonl.xz). Every command that takes RECORDS reads the bundle.
    """
    found = _read(records, uri)
    from reports.audit.signatures import carried

    signed, left_out = carried(list(map(Path, records)), found) if uri is None else ([], [])
    for line in left_out:
        print(f"symlab: {line}", file=sys.stderr)
    size_bytes = bundles.write(found, output, signed=signed)
    says = f", {counted(sum(len(one.signatures) for one in signed), 'signature')}" if signed else ""
    print(f"{output}: {counted(len(found), 'record')}{says}, {size_bytes} bytes")


@reports.command("audit", epilog="Exit codes: 0 verified; 1 a finding; 2 the request is wrong, or not auditable.")
@_takes_records
@click.option(
    "--band", default="2%", metavar="PERCENT", show_default=True, help="Maximum change of a time that does not matter."
)
@click.option(
    "--gate",
    type=click.Choice(tuple(map(str, Gate))),
    help="Of two sets: the findings that decide the exit code.  [default: any]",
)
@click.option("--format", "form", type=click.Choice(AUDIT_FORMATS), default="text", show_default=True)
@click.option(
    "--inputs-up-to",
    default="1M",
    metavar="SIZE",
    show_default=True,
    help="Maximum size of cases whose inputs are made again; 0 for none.",
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
    help="Of one set: number of cases to run again in the simulator.  [default: all that begin within a minute]",
)
@click.option("--seed", type=click.IntRange(0), help="The seed that chooses these cases.  [default: a random one]")
@click.option(
    "--signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of one set: names and keys that may vouch, in the form that ssh-keygen takes.",
)
@_output("Write the result, too: a .html (the report with the audit), .md or .json.")
def audit(
    records: tuple[str, ...],
    uri: str | None,
    band: str,
    gate: str | None,
    form: str,
    inputs_up_to: str,
    code: tuple[Path, ...],
    rerun: str | None,
    seed: int | None,
    signers: Path | None,
    output: Path | None,
) -> int:
    """Check records against a list of items, or compare two sets.

    One RECORDS (a record file, a folder or a bundle) is checked against the list of items. Two of them,
    BEFORE and AFTER, are compared. With --mlflow, one of two may be files, too.
    """
    decides = Gate(gate) if gate else None
    if len(records) == 2 and (rerun is not None or seed is not None):
        raise ValueError("--rerun, --seed: two places are compared with each other, give one, or use symlab replay")
    wanted = Wanted(size_of(inputs_up_to), code, rerun_of(rerun, seed))
    return audited(AuditOptions(records, uri, parse_band(band), decides, form, output, signers, wanted))


@reports.command("sign", epilog=EXIT_CODES)
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

    FOLDER is the folder of a command that ended, reports/published, or a bundle (*.jsonl.xz). symlab audit --signers
    says who signed. A signature proves who vouches for the records as they are, and not that they are true.
    """
    from reports.audit.signatures import signed_with

    print(signed_with(place, key))


@reports.command("history", epilog=EXIT_CODES)
@_takes_records
@click.option("--band", default="2%", metavar="PERCENT", show_default=True, help="Maximum change that is not named.")
@click.option("--changed", "is_changed", is_flag=True, help="Show only cases whose times or data changed.")
@click.option("--format", "form", type=click.Choice(AUDIT_FORMATS), default="text", show_default=True)
@_output("Write the result, too: a .html (a page with charts and links to the raw samples), .md or .json.")
def history(
    records: tuple[str, ...], uri: str | None, band: str, is_changed: bool, form: str, output: Path | None
) -> None:
    """Show how cases changed over commits and libraries.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz), of any number of commands. Each
    case is a series of worlds in order of time, with its change points.
    """
    from reports.history.command import HistoryOptions, show

    show(HistoryOptions(records, uri, parse_band(band), is_changed, form, output))


@reports.command("export", epilog=EXIT_CODES)
@_takes_records
@click.option(
    "--to",
    "consumer",
    required=True,
    type=click.Choice(CONSUMERS),
    help="Whose table to make.",
)
@_output("Write the table to a file, and print what its comments say.  [default: print the table]")
def export(records: tuple[str, ...], uri: str | None, consumer: str, output: Path | None) -> None:
    """Make a table that NCCL, vLLM or SGLang loads.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz), of one type of GPU and one number
    of ranks. nccl: the CSV of NCCL's tuner plugin, of sweeps over library.nccl_algo, nccl_proto and nccl_channels. vllm
    and sglang: maximum sizes of all-reduces. Each file names its records, and its regret on sizes left out.
    """
    if output is not None:
        bundles.can_be_written(output)
    from reports.export.command import export as exported_to

    exported_to(consumer, _read(records, uri), output)


@reports.command("published", epilog=EXIT_CODES)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=Path(__file__).resolve().parent.parent,
    show_default=True,
    metavar="DIR",
    help="The project's folder.",
)
@click.option("--check", is_flag=True, help="Write nothing; name the files that differ from what the bundles give.")
@click.option("--audit", "is_audit", is_flag=True, help="Write nothing; audit all that is published.")
@click.option("--level", "is_level", is_flag=True, help="Audit, and write the level that later audits ask for.")
@click.option("--accept", metavar="REASON", help="Take bundles that differ from those of HEAD, and record the reason.")
@click.option(
    "--signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --audit: names and keys that may vouch, in the form that ssh-keygen takes.",
)
def published(root: Path, check: bool, is_audit: bool, is_level: bool, accept: str | None, signers: Path | None) -> int:
    """Make the tables, figures and README sections of what is published."""
    if signers is not None and not is_audit:
        raise ValueError("--signers has no effect without --audit")
    if accept is not None:
        from reports import accepted

        if check or is_audit or is_level:
            raise ValueError("--accept writes tables and figures: give it without --check, --audit and --level")
        accepted.accept(root, accept)
    if is_audit or is_level:
        from reports.audit.published import audit_published
        from reports.audit.ssh import checked_signers

        return audit_published(root, Progress(), checked_signers(signers) if signers else None, is_level)
    from reports.publish import refresh

    refresh(root, is_check=check)
    return 0
