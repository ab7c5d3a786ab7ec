"""What a stored PTX file says of a recorded kernel."""

import dataclasses

from cases.code_digest import code_digest
from symlab.evidence.audit.code import StoredCode
from tests.symlab.evidence.audit.complete_set import PTX, kernel


def test_what_the_file_contradicts_is_told():
    recorded, stored = kernel(), StoredCode(PTX.encode())
    assert list(stored.contradicted(recorded)) == []
    assert list(stored.contradicted(dataclasses.replace(recorded, code_digest=code_digest(PTX)))) == []
    changes = {"code_digest": "sha256:0", "entry": "entry_9", "multimem": ("multimem.red",)}
    assert len(list(stored.contradicted(dataclasses.replace(recorded, **changes)))) == 3


def test_a_users_lines_are_no_code():
    recorded = dataclasses.replace(kernel(), code_digest=code_digest(PTX))
    with_lines = PTX.replace(".visible", "/* at ring.py:7 */ .visible")
    assert with_lines != PTX
    assert list(StoredCode(with_lines.encode()).contradicted(recorded)) == []


def test_the_name_of_a_file_is_no_instruction():
    """In a line table; records had it among their instructions once."""
    text = f'{PTX}\n.file 1 "/kernels/dsl/multimem.py"\n'
    recorded = dataclasses.replace(kernel(), code_digest=code_digest(text))
    for names in ((), ("multimem.py",)):
        one = dataclasses.replace(recorded, multimem=(*recorded.multimem, *names))
        assert list(StoredCode(text.encode()).contradicted(one)) == []
