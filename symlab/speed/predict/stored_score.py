"""The committed score: the constants that predictions take, their intervals, and the table in README.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cases.documents import decoded, parsed
from reports.record.writing import write_file
from reports.table.sheet import Line, Sheet, markdown, text
from symlab.speed.predict.score import Score

PLACE = Path(__file__).with_name("score.json")
README = Path(__file__).with_name("README.md")
_SECTION = re.compile(r"(<!-- score -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_COLUMNS = ("left out", "cases", "median", "p95", "max", "regret mean", "regret p95", "right")


def stored(path: Path = PLACE) -> Score:
    """Return the committed score. ValueError, naming the file, if it holds none."""
    try:
        return decoded(Score, parsed(path.read_text(encoding="utf-8")), "score")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a score ({error})") from error


def score_text(score: Score) -> str:
    """Return a score as one JSON document, as it is committed."""
    return json.dumps(score.document(), indent=1) + "\n"


def write(score: Score, path: Path = PLACE, readme: Path = README) -> None:
    """Write a score and its table in the README."""
    write_file(path, score_text(score).encode())
    write_file(readme, with_table(readme.read_text(encoding="utf-8"), score).encode())


def with_table(page: str, score: Score) -> str:
    """Return a page with the table of a score between its marks."""
    body = f"\n{markdown([sheet(score)], captions(score))}\n\n"
    return _SECTION.sub(lambda match: f"{match[1]}{body}{match[3]}", page)


def shown(score: Score, width: int | None) -> str:
    """Return the table as text. width: see reports.table.sheet.text."""
    return text([sheet(score)], captions(score), width)


def captions(score: Score) -> list[str]:
    """Return what stands below the table."""
    constants = score.constants
    apart = ", ".join(f"{name} {100 * share:.0f} %" for name, share in score.apart.items())
    regimes = ", ".join(f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in score.intervals.items())
    return [
        f"fitted to all {score.cases} cases of {' and '.join(score.fitted_to)}: "
        f"begin {constants.begin_us:.3f} us, cold {constants.cold_us:.3f} us; of dependent launches "
        f"path {constants.dependent_path:.3f}, cold {constants.dependent_cold_us:.3f} us",
        f"measured / predicted of 90 % of the cases, op and algorithm left out: {regimes}",
        f"published sets that nothing was fitted to, and their cases within these intervals: {apart or 'none'}",
    ]


def sheet(score: Score) -> Sheet:
    """Return a score's rows as a table: relative errors in percent, regret in percent."""
    lines = []
    for row in score.rows:
        cells = dict.fromkeys(_COLUMNS, "") | {"left out": row.split, "cases": "no records"}
        if (errors := row.errors) is not None:
            figures = {"median": errors.median, "p95": errors.p95, "max": errors.largest}
            cells |= {"cases": str(errors.cases), **{name: f"{share:.1%}" for name, share in figures.items()}}
        if (regret := row.regret) is not None:
            cells |= {"regret mean": f"{regret.mean:.1%}", "regret p95": f"{regret.p95:.1%}"}
            cells["right"] = f"{regret.right:.0%}"
        lines.append(Line({name: cell.replace("%", " %") for name, cell in cells.items()}))
    heading = f"Errors and regret of predictions, {score.gpu}"
    return Sheet(heading, _COLUMNS, (tuple(lines),), frozenset(_COLUMNS[1:]))
