"""check: a section, whose name alone is short for check.results on the command line, in files and in older records."""

import shutil

from cases.record.request import as_today, overrides_today
from runner.request.compose import compose_jobs, hydra_over
from runner.request.composer import Composer
from runner.request.configured import configured
from runner.request.experiments import CONF
from runner.request.validate import validate

FORMS = {
    "": (True, False),
    "check=false": (False, False),
    "check=true check.races=true": (True, True),
    "check.races=true check=false": (False, True),
    "check.results=false": (False, False),
    "check={races:true}": (True, True),
}
IN_FILES = {"check: false": (False, False), "check: {results: false, races: true}": (False, True)}


def checks(*lines, multirun=False):
    """Of each job that a command line asks for, whether results and races are checked. Inside hydra_over."""
    return [(job.request.check, job.request.fabric.races) for job in compose_jobs(lines, multirun)]


def test_on_the_command_line():
    with hydra_over():
        assert {line: checks(*line.split()) for line in FORMS} == {line: [found] for line, found in FORMS.items()}


def test_in_a_sweep():
    with hydra_over():
        assert checks("check=true,false", multirun=True) == [(True, False), (False, False)]
        assert checks("check.races=true,false", multirun=True) == [(True, True), (True, False)]


def test_in_a_file(tmp_path):
    (tmp_path / "exp").mkdir()
    for number, text in enumerate(IN_FILES):
        (tmp_path / "exp" / f"mine{number}.yaml").write_text(f"# @package _global_\n{text}\n")
    with hydra_over(tmp_path):
        for number, expected in enumerate(IN_FILES.values()):
            assert checks(f"+exp=mine{number}") == [expected]
            assert checks(f"+exp=mine{number}", "check=true") == [(True, expected[1])]


def test_of_an_older_record():
    """Their configurations, and the overrides that an audit composes again."""
    with hydra_over():
        for value in (True, False):
            request = validate(configured({"check": value, "seed": 3}))
            assert (request.check, request.fabric.races, request.seed) == (value, False, 3)
            again = Composer().composition([f"check={str(value).lower()}"])
            assert validate(again.config).check == value


def test_an_older_configuration_in_todays_form():
    assert as_today({"check": True, "op": "x"}) == {"check": {"results": True, "races": False}, "op": "x"}
    today = {"check": {"results": False, "races": True}}
    assert as_today(today) == today
    assert overrides_today(["isolation=job", "timing.lead_in_calls=0", "timing.l2=hot"]) == ("timing.l2=hot",)
    assert overrides_today(["timing.lead_in_calls=3"]) == ("timing.lead_in_calls=3",), "calls that ran, today's do not"
    timing = {"predict": True, "lead_in_calls": 3, "l2": "hot"}
    assert as_today({"isolation": "none", "timing": timing}) == {"timing": {"lead_in_calls": 3, "l2": "hot"}}
    timing = {"window": "kernel", "precision": None, "l2": "hot"}
    assert as_today({"timing": timing}) == {"timing": {"l2": "hot"}}
    assert as_today({"timing": {"window": "both_barriers"}}) == {"timing": {"window": "both_barriers"}}
    assert as_today({"timing": {"shared": False, "calls": 2}}) == {"timing": {"calls": 2}}
    given = ["timing.shared=false", "timing.shared=true", "timing.precision=null", "timing.precision=0.01"]
    assert overrides_today(given) == ("timing.shared=true", "timing.precision=0.01")


def test_the_configurations_of_an_older_commit_may_have_keys_that_are_gone(tmp_path):
    conf = shutil.copytree(CONF, tmp_path / "conf")
    with (conf / "config.yaml").open("a") as file:
        file.write("\nisolation: none\ntiming: {predict: false, lead_in_calls: 0}\n")
    with hydra_over(primary=conf):
        assert "isolation" not in Composer().composition(["op=all_gather"]).config
