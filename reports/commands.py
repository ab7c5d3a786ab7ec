"""The commands that look at records, as click objects."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cases.record.record import Record
from reports.record import bundle as bundles
from reports.record.writing import can_be_written, write_file
from reports.table import table as tables
from reports.table.text import counted, csv_of, json_of
from reports.table.unfinished import unfinished

FORMATS = ("text", "markdown", "csv", "json")

CONSUMERS = ("nccl", "vllm", "sglang", "sglang-configs")
"""Whose tables `export` makes, as reports.export knows them."""

Function = TypeVar("Function", bound=Callable[..., Any])

EXIT_CODES = "Exit codes: 0 done; 2 the request is wrong, or a file can't be read or written; 130 Ctrl-C."


def takes_records(function: Function) -> Function:
    """Add what every command has that reads records, see read_records."""
    return click.argument(
        "records", nargs=-1, required=True, metavar="RECORDS...", type=click.Path(), callback=_without_pages
    )(function)


def takes_as(kind: type) -> Callable[[Callable[[Any], int]], Callable[..., int]]:
    """Give a command all of its options as one object, whose fields have their names."""

    def given(function: Callable[[Any], int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            return function(kind(**values))

        return call

    return given


def _without_pages(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Several places without pages among them: `symlab html` writes one beside a folder, and `records/*` names both."""
    return tuple(place for place in given if not place.endswith(".html")) or given


def output_option(help: str, **more: Any) -> Callable[[Function], Function]:
    return click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help=help, **more)


def read_records(records: tuple[str, ...]) -> list[Record]:
    """The records that a command line names."""
    found = bundles.read(records)
    gc.freeze()  # they stay to the end: no search for cycles looks at them
    return found


@click.command("table", epilog=EXIT_CODES)
@takes_records
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="csv and json have all values, unrounded, and the refused cases, too.",
)
@click.option("--wide", is_flag=True, help="A line a size, a column an algorithm (text and markdown).")
def table(records: tuple[str, ...], form: str, wide: bool) -> None:
    """Print the table that a run ends with.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz). Several worlds of one case are
    one line.
    """
    found = read_records(records)
    for line in unfinished(records, found):  # of which commands cases are missing
        print(f"symlab: {line}", file=sys.stderr)
    if form in ("csv", "json"):
        if wide:
            raise ValueError(f"--wide is for people; {form} has a line for each case")
        lines = tables.values(found)
        print(csv_of(lines) if form == "csv" else json_of(lines), end="")
    else:
        if wide and all(record.timing is None for record in found):
            print("symlab: --wide lays out times, and none of these records has one: the usual table", file=sys.stderr)
        shown = f"{tables.console_table(found, is_wide=wide)}\n" if form == "text" else tables.markdown(found, wide)
        print(shown, end="")


@click.command("figure", epilog=EXIT_CODES)
@takes_records
@output_option("The figure's name, which ends in .svg or .png.", required=True)
def figure(records: tuple[str, ...], output: Path) -> None:
    """Draw times and bandwidths over sizes.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz). Each job is a row.
    """
    found = read_records(records)
    from reports.figures import draw

    draw(found, output)
    print(f"{output}: written")


@click.command("html", epilog=EXIT_CODES)
@takes_records
@output_option(
    "The report's name, which ends in .html.  [default: NAME.html beside the records; of several places, report.html "
    "here]"
)
def html(records: tuple[str, ...], output: Path | None) -> None:
    """Write one HTML file with tables, figures and environment.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz).
    """
    if output is not None:
        if output.suffix not in (".html", ".htm"):
            raise ValueError(f"{output}: a report's name ends in .html")
        can_be_written(output)
    found = read_records(records)
    from reports.html import page
    from reports.html.page_path import page_path

    output = output or page_path(records)
    data = page(found).encode("utf-8")
    write_file(output, data)
    print(f"{output}: {counted(len(found), 'record')}, {len(data)} bytes")


@click.command("export", epilog=EXIT_CODES)
@takes_records
@click.option(
    "--to",
    "consumer",
    required=True,
    type=click.Choice(CONSUMERS),
    help="Whose table to make.",
)
@output_option("Write the table to a file, and print what its comments say.  [default: print the table]")
def export(records: tuple[str, ...], consumer: str, output: Path | None) -> None:
    """Make a table of which all-reduce, or settings of NCCL, to take when.

    RECORDS are record files, folders of them (at any depth), or bundles (*.jsonl.xz), of one type of GPU and one number
    of ranks. nccl: the CSV of NCCL's tuner plugin, of sweeps over library.nccl_algo, nccl_proto and nccl_channels. vllm
    and sglang: maximum sizes of all-reduces; sglang-configs: allreduce_configs.json, which no release of SGLang loads
    yet. Each file names its records, and its regret on sizes left out.
    """
    if output is not None:
        can_be_written(output)
    from reports.export.command import export as exported_to

    exported_to(consumer, read_records(records), output)
