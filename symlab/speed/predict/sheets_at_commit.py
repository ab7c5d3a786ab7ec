"""Compile cases and print how each is launched. Run by the code of an older commit, in its worktree: so it imports only
what every published commit has, and nothing of this one.

Standard input: a JSON list of {"key", "case"}. Arguments: the architecture, the folder of compiled kernels. Standard
output: {"kernels": {digest: {"entry", "ptx"}}, "launches": {key: ...}}, as recorded_kernels.py reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def in_x(extent: Any) -> int:
    """Return a grid or block as one number: later versions have three."""
    return int(extent if isinstance(extent, int) else extent[0])


def main(arch: str, cache_dir: Path) -> None:
    """Read cases from standard input, print what they compile to."""
    from kernels.catalogue import find
    from kernels.compile import executable

    try:  # a commit of before has no cases/, and would find that of another one
        from kernels.spec import Case  # type: ignore[attr-defined]
    except ImportError:
        from cases.case import Case

    kernels, launches = {}, {}
    for one in json.load(sys.stdin):
        case = Case(**one["case"])
        spec = find(case.name)
        made = executable(spec, case, arch, cache_dir)
        launch, spaces = spec.launch(case), spec.workspaces(case)
        kernels[made.digest] = {"entry": made.entry, "ptx": made.ptx}
        launches[one["key"]] = {
            "case": one["case"],
            "digest": made.digest,
            "blocks": in_x(launch.grid),
            "threads": in_x(launch.block),
            "parameters": [[parameter.kind, parameter.of] for parameter in spec.parameters],
            "workspaces": [[space.name, space.numel, space.dtype, space.zeroed, space.fill.hex()] for space in spaces],
        }
    json.dump({"kernels": kernels, "launches": launches}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
