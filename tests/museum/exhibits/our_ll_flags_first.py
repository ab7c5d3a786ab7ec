"""all_reduce/ll of this project, with each slot's flags stored before its words.

The mended kernel is ours as it is: a half of a slot, word and flag, is one access of 64 bits. The other is made from
its PTX: each store of two halves becomes a store of both flags and one of both words.
"""

import re

from cases.case import Case
from kernels.catalogue import find
from tests.museum.exhibit import OwnKernel

CASE = Case("all_reduce", "ll", "float32", "float32", "sum", 256, 2)
STORE = re.compile(r"^(\s*)st\.relaxed\.sys\.global\.v2\.b64 \[(%rd\d+)\], \{(%rd\d+), (%rd\d+)\};", re.MULTILINE)
"""How the kernel stores the halves of a slot."""


def flags_first(ptx):
    """Return the PTX with each slot's flags stored before its words."""

    def apart(match):
        indent, address, *halves = match.groups()
        lines = ["{", ".reg .b32 %word<2>, %flag<2>;"]
        lines += [f"mov.b64 {{%word{at}, %flag{at}}}, {half};" for at, half in enumerate(halves)]
        lines += [f"st.relaxed.sys.global.b32 [{address}+{8 * at + 4}], %flag{at};" for at in range(2)]
        lines += [f"st.relaxed.sys.global.b32 [{address}+{8 * at}], %word{at};" for at in range(2)]
        return "\n".join(indent + line for line in [*lines, "}"])

    changed, count = STORE.subn(apart, ptx)
    assert count, "the kernel stores no halves of slots"
    return changed


EXHIBIT = OwnKernel(
    name="our all_reduce/ll, flags first",
    defect="a slot's flags are stored before its words",
    spec=find(CASE.name),
    case=CASE,
    change=flags_first,
    ways=("random", "weak"),
)
