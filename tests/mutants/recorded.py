"""What the mutants' runs found, in results.json: by kernel a digest of its code, and for each of its mutants, in order,
what was found and by which try ("" if nothing was)."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memory.atomic_file import replacing
from tests.mutants.matmul_runs import matmul_tries
from tests.mutants.mutant_runs import tries

PLACE = Path(__file__).resolve().parent / "results.json"
MOST_SEEDS = 64
"""Seeds of recorded tries are below this."""

_PLACES = re.compile(r"^\s*(\.loc|\.file|//).*$", re.MULTILINE)
_FOUND = re.compile(r"(\w+) \((.+)\)")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A kernel's results. code: code_digest of the PTX that was mutated."""

    code: str
    found: tuple[str, ...]


def code_digest(ptx):
    """Return a digest of a kernel's instructions: lines that say only which source they come from do not count."""
    lines = [line.strip() for line in _PLACES.sub("", ptx).split("\n")]
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


def recorded():
    """Return all results by kernel."""
    if not PLACE.exists():
        return {}
    rows = json.loads(PLACE.read_text(encoding="utf-8"))
    return {kernel: Recorded(row["code"], tuple(row["found"])) for kernel, row in rows.items()}


def write(rows, order):
    """Write the results of the kernels in `order`, whole: processes at work read them meanwhile."""
    content = {name: {"code": rows[name].code, "found": rows[name].found} for name in order if name in rows}
    with replacing(PLACE) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def try_of(text):
    """Return the try that a result names; None if it names none."""
    matched = _FOUND.fullmatch(text)
    return _tries().get(matched[2]) if matched else None


@cache
def _tries():
    return {one.text: one for one in (*matmul_tries(MOST_SEEDS), *tries(MOST_SEEDS))}
