"""The code of today's kernels: kernels/matrix/codes.json, one digest a kernel, so that the matrix needs no compiler.

A kernel's code is one digest over the code digests of the variants that kernels/matrix/variants.py chooses. Proofs
carry the same digest, so a proof is of today's code if both are equal, wherever files and lines have moved since.
`symlab kernels --codes` compiles the kernels, and writes the file if it has other code of one. Each
kernel has a sample, one variant with its digest, that a test compiles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cases.documents import decoded, parsed

PLACE = Path(__file__).resolve().with_name("codes.json")


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel's code: `code` is the digest over all variants, `sample` the label of one, `sample_code` its digest."""

    variants: int
    code: str
    sample: str
    sample_code: str


def code_over(digests: Mapping[str, str]) -> str:
    """Return one "sha256:<hex>" over code digests by variant label, in the order of the labels."""
    text = "".join(f"{label} {digest}\n" for label, digest in sorted(digests.items()))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def code_from(digests: Mapping[str, str]) -> Code:
    """Return a kernel's code from the code digests of its variants by label. The first one is the sample."""
    sample = next(iter(digests))
    return Code(len(digests), code_over(digests), sample, digests[sample])


def codes(path: Path = PLACE) -> dict[str, Code]:
    """Return the file's content by kernel name. Raises ValueError, naming the file, if it is not what we write."""
    try:
        content = parsed(path.read_text(encoding="utf-8"))
        return {name: decoded(Code, one, name) for name, one in content.items()}
    except (OSError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: not what symlab kernels --codes writes ({error!r})") from None


def written(found: Mapping[str, Code]) -> str:
    """Return the file's text; the same codes give the same bytes."""
    return json.dumps({name: asdict(one) for name, one in sorted(found.items())}, indent=1) + "\n"
