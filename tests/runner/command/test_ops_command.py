"""The command line with each op: what it says, what its records say, and that nothing but the op has to be given."""


def test_the_first_lines_of_an_op_that_moves_data(symlab):
    done = symlab("op=all_gather", "algorithms=[push]", "world_size=3", "sizes=[12,13,1K]")
    lines = done.out.splitlines()
    assert lines[0] == "symlab: all_gather float32, moves data, 3 ranks, 2 sizes x 1 algorithm = 2 cases"
    assert lines[1] == "sizes: rounded down so that all ranks have equal chunks, as in nccl-tests; 12 and 13 became 12"
    assert "[2/2] push 1020 n3 PASSED" in lines
    assert "all_gather float32, moves data, 3 ranks, normal inputs" in lines
    record = done.records[0]
    assert (record["case"]["accumulator"], record["case"]["root"], record["case"]["offset"]) == ("none", 0, 0)
    assert record["request"]["configuration"]["accumulator"] == "auto"
    assert record["request"]["resolved"] == {"dtype": "float32", "accumulator": "none", "reduction": "none"}
    assert "rounded" not in symlab("op=all_gather", "algorithms=[push]", "sizes=[12]", "world_size=3").out


def test_what_an_op_can_not_do_ends_before_anything_runs(symlab):
    done = symlab("op=all_gather", "algorithms=auto", "reduction=sum")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "symlab: error: all_gather only moves data: no reduction 'sum' (reduction), give none or auto\n"
    )
