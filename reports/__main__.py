"""python -m reports: tables, pictures and bundles of records, whenever and wherever they were made."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from reports.audit import command as audit
from reports.numerics import study
from reports.record import bundle
from reports.record.record import Record
from reports.table import table

FORMATS = ("text", "markdown", "csv", "json")

EXIT_INTERRUPTED = 130
"""The shell's: 128 and the signal."""

KINDS = ("curves", "distribution", "numerics")
"""Pictures of `python -m reports figure`, as reports.figures knows them."""

_RECORDS = (
    f"record files, folders that hold some (at any depth), or bundles (*{bundle.SUFFIX}); "
    "with --mlflow ids of runs, or ids or names of experiments"
)


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command line, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Gives the exit code: 0 done, 2 the request is wrong, in one line on stderr; 130 after Ctrl-C. An audit's is its
    result's."""
    code = 0
    try:
        options = _parser().parse_args(arguments)
        code = options.run(options) or 0
        sys.stdout.flush()
    except ValueError as error:
        print(f"symlab: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("symlab: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (| head).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m reports",
        description="Look at records again: the table, pictures, bundles, audits, what is published.",
        epilog="exit codes: 0 done; 2 the request is wrong, or a file can't be read or written; 130 Ctrl-C; of an "
        "audit: 0 verified, 1 a finding, 2 not auditable",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    one = _command(
        commands, "table", _table, "the table that a command ends with; several worlds of a case are one line"
    )
    _takes_records(one)
    one.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="csv and json hold raw values, refused cases too (%(default)s)",
    )
    one.add_argument("--wide", action="store_true", help="a line a size, a column a contestant (text and markdown)")
    two = _command(commands, "figure", _figure, "a picture: time and bus bandwidth over bytes, a row for each job")
    _takes_records(two)
    two.add_argument(
        "--kind",
        choices=KINDS,
        default=KINDS[0],
        help="curves: time and bus bandwidth; distribution: samples against their median; numerics: errors over bytes "
        "(%(default)s)",
    )
    two.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="a .svg or .png")
    three = _command(commands, "bundle", _bundle, "all records in one compressed file, which tables and pictures read")
    _takes_records(three)
    three.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help=f"a *{bundle.SUFFIX}")
    four = _command(commands, "published", _published, "make tables, figures and README sections of what is published")
    four.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the project's folder (%(default)s)"
    )
    four.add_argument(
        "--check", action="store_true", help="write nothing; name files that differ from what bundles give"
    )
    four.add_argument("--audit", action="store_true", help="write nothing; audit all that is published")
    five = _command(commands, "study", _study, "what accumulators cost: errors over world sizes, for each algorithm")
    _takes_records(five)
    five.add_argument("--format", choices=("text", "markdown"), default="text", help="(%(default)s)")
    five.add_argument("-o", "--output", type=Path, metavar="FILE", help="draw the curves, too: a .svg or .png")
    six = _command(
        commands, "html", _html, "everything in one HTML file: tables, pictures, reasons, environment, digests"
    )
    _takes_records(six)
    usual = "<name>.html beside the records; of several places, report.html here"
    six.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"a .html ({usual})")
    six.add_argument("--title", default="", help="the page's title (ops and machine)")
    seven = _command(
        commands, "audit", _audit, "check RECORDS against the list of twenty; or compare BEFORE with AFTER, two places"
    )
    _takes_records(seven)
    audit.add_options(seven)
    return parser


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], Any], text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    parser.set_defaults(run=run)
    return parser


def _takes_records(parser: argparse.ArgumentParser) -> None:
    """What a command needs that reads records, see _read."""
    parser.add_argument("records", nargs="+", metavar="RECORDS", help=_RECORDS)
    parser.add_argument(
        "--mlflow", metavar="URI", help="take the records from MLflow: sqlite:///mlflow.db, or a server's http://..."
    )


def _table(options: argparse.Namespace) -> None:
    records = _read(options)
    if options.wide and options.format in ("csv", "json"):
        raise ValueError(f"--wide is for people; {options.format} has a line for each case")
    makers = {"markdown": table.markdown, "csv": table.csv_text, "json": table.json_text}
    if options.format == "text":
        print(table.plain(records, True) if options.wide else table.console_table(records))
    elif options.format == "markdown":
        print(table.markdown(records, options.wide), end="")
    else:
        print(makers[options.format](records), end="")


def _figure(options: argparse.Namespace) -> None:
    records = _read(options)
    from reports.figures import draw

    draw(records, options.output, options.kind)
    print(f"{options.output}: written")


def _bundle(options: argparse.Namespace) -> None:
    records = _read(options)
    size_bytes = bundle.write(records, options.output)
    print(f"{options.output}: {len(records)} records, {size_bytes} bytes")


def _html(options: argparse.Namespace) -> None:
    output: Path | None = options.output
    if output is not None and output.suffix not in (".html", ".htm"):
        raise ValueError(f"{output}: a report's name ends in .html")
    if output is not None:
        bundle.can_be_written(output)
    records = _read(options)
    from reports.html import page
    from reports.html.page_path import page_path

    output = output or page_path(options.records if options.mlflow is None else ())
    data = page(records, options.title, is_alone=True).encode("utf-8")
    bundle.write_file(output, data)
    print(f"{output}: {len(records)} records, {len(data)} bytes")


def _published(options: argparse.Namespace) -> int:
    from reports import publish

    if options.audit:
        from reports.audit.published import audit_published

        return audit_published(options.root, audit.Progress())
    publish.refresh(options.root, is_check=options.check)
    return 0


def _audit(options: argparse.Namespace) -> int:
    return audit.run(options)


def _study(options: argparse.Namespace) -> None:
    records = _read(options)
    curves = study.studied(records, least=2)
    if not curves:
        raise ValueError("none of these records is of a sum that was checked on two world sizes or more: no curve")
    if options.format == "markdown":
        print(study.markdown(curves), end="")
    else:
        print(study.text(curves))
    if options.output is not None:
        from reports.figures import draw_study

        draw_study(curves, records, options.output)
        print(f"{options.output}: written")


def _read(options: argparse.Namespace) -> list[Record]:
    """The records that a command line names, from files or from MLflow."""
    if options.mlflow is None:
        return bundle.read(options.records, is_alone=True)
    from reports.tracked import fetch

    return fetch(options.mlflow, options.records)


if __name__ == "__main__":
    sys.exit(main())
