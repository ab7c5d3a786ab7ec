"""How far a command is: what is said of it, and its work."""

from cases.case import Case
from runner.command.progress import Progress, work_of
from tests.golden import same_text


def case(size_bytes, world_size=4):
    return Case("all_reduce", "one_shot", "float32", "float32", "sum", size_bytes, world_size)


def test_the_work_of_a_case_goes_by_the_bytes_of_all_its_ranks():
    assert work_of(case(8 << 20)) == work_of(case(4 << 20, 8)) > 4 * work_of(case(1 << 20)) > 0
    assert work_of(case(0)) > 0, "an empty case takes time, too"


def test_what_is_said_beside_the_bar():
    many = Progress(12, jobs=12, done=6, failed=2, job=7, case="one_shot 1M n4 in place")
    spread = Progress(12, jobs=12, done=6, failed=2, spread="3 running, 5 of 12 jobs done")
    one = Progress(1, case="one_shot 1K n4")
    same_text("\n".join(each.line() for each in (many, spread, one)))
