"""A configuration from values is what Hydra composes of them, and is refused in the same words."""

import pytest
from omegaconf.errors import OmegaConfBaseException

from runner.request.compose import compose_jobs, hydra_over
from runner.request.configured import configured, merged, plain_configuration
from runner.request_error import RequestError
from simulator.options import Granularity


def test_values_give_what_overrides_give():
    overrides = ["op=broadcast", "sizes=[1K,4K]", "fabric.seed=3", "timing.mode=none", "inputs=edge", "world_size=72"]
    values = {
        "op": "broadcast",
        "sizes": {"list": ["1K", "4K"]},
        "fabric": {"seed": 3},
        "timing": {"mode": "none"},
        "inputs": "edge",
        "world_size": 72,
    }
    with hydra_over():
        for lines, given in (([], {}), (overrides, values)):
            (job,) = compose_jobs(lines, False)
            assert plain_configuration(configured(given)) == job.configuration


def test_a_record_that_names_no_granularity_ran_by_blocks():
    assert merged({}).fabric.granularity == merged({"fabric": {"seed": 1}}).fabric.granularity == Granularity.block
    assert merged({"fabric": {"granularity": None}}).fabric.granularity is None


def test_wrong_values_are_refused_in_the_words_of_the_command():
    wrong = {
        "inputs=exakt": {"inputs": "exakt"},
        "world_size=two": {"world_size": "two"},
        "fabric.seed=1.5": {"fabric": {"seed": 1.5}},
        "fabric.sead=1": {"fabric": {"sead": 1}},
        "check=perhaps": {"check": "perhaps"},
    }
    with hydra_over():
        for override, values in wrong.items():
            with pytest.raises(RequestError) as caught:
                compose_jobs([override], False)
            with pytest.raises(RequestError) as mine:
                configured(values)
            assert str(mine.value) == str(caught.value)
            with pytest.raises(OmegaConfBaseException):
                merged(values)
