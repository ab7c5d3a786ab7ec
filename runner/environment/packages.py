"""What is installed: every distribution with its version, and how torch was built, without importing any of them."""

from __future__ import annotations

import importlib.util
import re
import runpy
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_FIELD = re.compile(r"^(Name|Version): *(\S+)", re.MULTILINE)


def installed(paths: Sequence[str] | None = None) -> dict[str, str]:
    """Return versions by canonical name, sorted.

    If a distribution is installed twice, the first one on the path counts, as for imports. paths: sys.path by default.
    """
    found: dict[str, str] = {}
    for distribution in metadata.distributions() if paths is None else metadata.distributions(path=list(paths)):
        fields = _fields(distribution)
        if "Name" in fields and "Version" in fields:
            found.setdefault(canonical(fields["Name"]), fields["Version"])
    return dict(sorted(found.items()))


def canonical(name: str) -> str:
    """Return a distribution's name as indexes compare it: in small letters, with dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _fields(distribution: metadata.Distribution) -> dict[str, str]:
    """Return the name and the version of a distribution; neither for a folder without readable metadata.

    distribution.metadata would parse descriptions, too, and what it does without metadata depends on whether something
    has imported the backport importlib_metadata.
    """
    try:
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    except UnicodeDecodeError:
        return {}
    return dict(_FIELD.findall(text.partition("\n\n")[0]))


def torch_build(missing: dict[str, str]) -> dict[str, Any] | None:
    """torch's version, the commit it was made of, and the CUDA it was made for (None: for CPUs), from its version.py.

    The versions of cuDNN and NCCL that it loads are those of their distributions; ranks on GPUs say what they have.
    """
    try:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            missing["torch"] = "not installed"
            return None
        values = runpy.run_path(str(Path(spec.origin).parent / "version.py"))
    except (OSError, ValueError, ImportError, SyntaxError) as error:
        missing["torch"] = str(error)
        return None
    found = {"version": values.get("__version__")}
    return found | {name: values.get(name) for name in ("git_version", "cuda", "hip", "debug")}
