"""Runs over many seeds say how far they are, once that takes over two seconds, and how long all took."""

import re

import symlab
from symlab.seeds import told

NOTHING = ".version 8.0\n.target sm_90\n.entry nothing() { ret; }\n"


def test_lines_come_less_and_less_often(capsys):
    seconds = iter(range(100))
    assert list(told(range(20), clock=lambda: float(next(seconds)))) == list(range(20))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "symlab: 1 of 20 seeds in 2.0 s",
        "symlab: 3 of 20 seeds in 4.0 s",
        "symlab: 7 of 20 seeds in 8.0 s",
        "symlab: 15 of 20 seeds in 16.0 s",
        "symlab: 20 seeds in 21.0 s, 0.952 a second",
    ]


def test_simulate_tells_through_it_and_is_silent_while_it_is_short(capsys, monkeypatch):
    def run():
        symlab.simulate(NOTHING, ranks=1, grid=1, block=1, buffers={}, arguments=[], seeds=3)
        return capsys.readouterr().err

    assert run() == ""
    monkeypatch.setattr("symlab.seeds.FIRST_S", 0.0)
    lines = run().splitlines()
    assert lines[0].startswith("symlab: 0 of 3 seeds in ")
    assert re.fullmatch(r"symlab: 3 seeds in \d+\.\d s, \S+ a second", lines[-1])
