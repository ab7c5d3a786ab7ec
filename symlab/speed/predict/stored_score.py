"""The committed score: the constants that predictions take, their intervals, and the table in README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.record.writing import write_file
from reports.table.sheet import Line, Sheet, markdown, text
from symlab.speed.predict.model import Fitted
from symlab.speed.predict.score import Score

PLACE = Path(__file__).with_name("score.json")
README = Path(__file__).with_name("README.md")
_SECTION = re.compile(r"(<!-- score -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_COLUMNS = ("left out", "cases", "median", "p95", "max", "regret mean", "regret p95", "right")


@dataclass(frozen=True, slots=True)
class Stored:
    """What predictions take of a score: the type of GPU it is of, the number of cases, the constants, and measured /
    predicted (from, to) by regime."""

    gpu: str
    cases: int
    constants: Fitted
    intervals: Mapping[str, tuple[float, float]]


def stored(path: Path = PLACE) -> Stored:
    """Return the committed constants. ValueError, naming the file, if it holds none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        intervals = {name: (float(low), float(high)) for name, (low, high) in document["intervals"].items()}
        return Stored(document["gpu"], int(document["cases"]), Fitted(**document["constants"]), intervals)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a score ({error})") from error


def score_text(score: Score) -> str:
    """Return a score as one JSON document, as it is committed."""
    return json.dumps(score.document(), indent=1) + "\n"


def write(score: Score, path: Path = PLACE, readme: Path = README) -> None:
    """Write a score and its table in the README."""
    write_file(path, score_text(score).encode())
    write_file(readme, with_table(readme.read_text(encoding="utf-8"), score.document()).encode())


def with_table(page: str, document: Mapping[str, Any]) -> str:
    """Return a page with the table of a score's document between its marks."""
    body = f"\n{markdown([sheet(document)], captions(document))}\n\n"
    return _SECTION.sub(lambda match: f"{match[1]}{body}{match[3]}", page)


def shown(document: Mapping[str, Any], width: int | None) -> str:
    """Return the table as text. width: see reports.table.sheet.text."""
    return text([sheet(document)], captions(document), width)


def captions(document: Mapping[str, Any]) -> list[str]:
    """Return what stands below the table."""
    constants = document["constants"]
    regimes = ", ".join(f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in document["intervals"].items())
    return [
        f"fitted to all {document['cases']} cases of {' and '.join(document['fitted_to'])}: "
        f"begin {constants['begin_us']:.3f} us, cold {constants['cold_us']:.3f} us; of dependent launches "
        f"path {constants['dependent_path']:.3f}, cold {constants['dependent_cold_us']:.3f} us",
        f"measured / predicted of 90 % of the cases, op and algorithm left out: {regimes}",
        f"published sets that nothing was fitted to: {', '.join(document['apart']) or 'none'}",
    ]


def sheet(document: Mapping[str, Any]) -> Sheet:
    """Return a score's rows as a table: relative errors in percent, regret in percent."""
    lines = []
    for row in document["rows"]:
        errors, regret = row["errors"], row["regret"]
        cells = dict.fromkeys(_COLUMNS, "") | {"left out": row["split"], "cases": "no records"}
        if errors is not None:
            cells |= {"cases": str(errors["cases"])}
            cells |= {name: _percent(errors[key]) for name, key in _ERRORS.items()}
        if regret is not None:
            cells |= {"regret mean": _percent(regret["mean"]), "regret p95": _percent(regret["p95"])}
            cells["right"] = f"{100 * regret['right']:.0f} %"
        lines.append(Line(cells))
    heading = f"Errors and regret of predictions, {document['gpu']}"
    return Sheet(heading, _COLUMNS, (tuple(lines),), frozenset(_COLUMNS[1:]))


_ERRORS = {"median": "median", "p95": "p95", "max": "largest"}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
