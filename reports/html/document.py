"""The page: its parts in their order, and the embedded figures for programs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases.record.record import Record
from reports.html import answer, commands, environment, measurements, outcomes, races
from reports.html.blocks import Block, Notes, Part, Table, Verdict, columns_of, drawn, shades
from reports.html.pictures import MOST as MOST_PICTURES
from reports.html.pictures import Album
from reports.record.bundle import begun
from reports.table import table
from reports.table.compare import is_simulated
from reports.table.sheet import Audit

_FOLDER = Path(__file__).parent


def page(
    records: Sequence[Record],
    title: str = "",
    audit: Audit | None = None,
    most_pictures: int = MOST_PICTURES,
) -> str:
    """Return the report as the text of one self-contained HTML file.

    Records come in any order. title: what the page is called, beside the heading that says ops and machine.
    most_pictures: maximum number of axes; the page names the pictures that it leaves out.
    Raises ValueError without records.
    """
    if not records:
        raise ValueError("a report needs at least one record")
    records = sorted(records, key=begun)
    album = Album(most_pictures)
    real = [record for record in records if not is_simulated(record)]
    simulated = [record for record in records if is_simulated(record)]
    answered = answer.blocks(real, simulated, album)
    # Simulated and measured records are never mixed in tables of figures or in pictures.
    parts: list[Part | None] = [
        _audit_part(audit) if audit is not None else None,
        measurements.part(real, album),
        outcomes.plain_part(real, "untimed", "Without times: on hardware, or before anything ran"),
        outcomes.plain_part(simulated, "simulated", "Simulated: results, and no times"),
        races.part(records),
        outcomes.refusals_part(records),
        commands.part(records),
        environment.fabrics_part(records),
        environment.environment_part(records),
        environment.digests_part(records),
    ]
    return _rendered(
        kicker="symlab report",
        given=title,
        title=_title(records),
        asked=answer.asked(records),
        rivals=answer.rivals(real),
        answer=answered,
        verdict=outcomes.verdict(records),
        counts=outcomes.counts(records),
        total=len(records),
        facts=outcomes.facts(records),
        parts=[part for part in parts if part is not None],
        left_out=album.left_out(),
        swatches=album.swatches,
        svgs=album.drawn(),
        figures=_json(table.values(records)),
    )


def _audit_part(audit: Audit) -> Part:
    blocks: list[Block] = [Verdict(audit.verdict), *map(Table, audit.sheets), Notes(tuple(audit.captions))]
    return Part("audit", "Audit", tuple(blocks))


def _title(records: Sequence[Record]) -> str:
    ops = list(dict.fromkeys(record.case.op for record in records))
    shown = ", ".join(ops) if len(ops) <= 3 else f"{', '.join(ops[:2])} and {len(ops) - 2} other ops"
    return f"{shown} on {outcomes.machine(records)}"


def _json(figures: list[dict[str, object]]) -> str:
    """Return JSON that is safe inside <script>: "<", ">" and "&" are escaped."""
    text = json.dumps(figures, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy: nothing is loaded, and only this style and this script are run.

    Pictures have styles in attributes, which can't load anything either.
    """
    of_style, of_script = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (style, script))
    allowed = {
        "default-src": "'none'",
        "script-src": f"'sha256-{of_script}'",
        "style-src": f"'sha256-{of_style}'",
        "style-src-attr": "'unsafe-inline'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _rendered(**values: Any) -> str:
    """Return the template with these values, all escaped."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"drawn": drawn, "shades": shades, "columns_of": columns_of}
    style, script = (_FOLDER.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    environment.globals |= {"raw": Markup, "style": Markup(style), "script": Markup(script)}
    environment.globals["generator"] = "symlab"
    environment.globals["policy"] = Markup(_policy(style, script))
    return environment.get_template("page.html.j2").render(**values).strip() + "\n"
