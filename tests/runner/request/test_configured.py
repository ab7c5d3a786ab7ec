"""A configuration from values is what Hydra composes of them, and is refused in the same words."""

from __future__ import annotations

import pytest
from omegaconf.errors import OmegaConfBaseException

from runner.request.compose import compose_jobs, composed, hydra_over
from runner.request.configured import configured, merged, plain_configuration
from runner.request_error import RequestError


def test_nothing_gives_what_hydra_composes_of_nothing() -> None:
    with hydra_over():
        (job,) = compose_jobs([], False)
    assert plain_configuration(configured({})) == job.configuration


def test_values_give_what_overrides_give() -> None:
    overrides = ["op=broadcast", "sizes=[1K,4K]", "fabric.seed=3", "timing.mode=none", "inputs=edge", "deadline_s=500"]
    values = {
        "op": "broadcast",
        "sizes": {"list": ["1K", "4K"]},
        "fabric": {"seed": 3},
        "timing": {"mode": "none"},
        "inputs": "edge",
        "deadline_s": 500,
    }
    with hydra_over():
        (job,) = compose_jobs(overrides, False)
    assert plain_configuration(configured(values)) == job.configuration


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("inputs=exakt", {"inputs": "exakt"}),
        ("world_size=two", {"world_size": "two"}),
        ("fabric.seed=1.5", {"fabric": {"seed": 1.5}}),
        ("fabric.sead=1", {"fabric": {"sead": 1}}),
        ("check=perhaps", {"check": "perhaps"}),
    ],
)
def test_wrong_values_are_refused_in_the_words_of_the_command(override: str, values: dict[str, object]) -> None:
    with hydra_over(), pytest.raises(RequestError) as caught:
        composed([override])
    with pytest.raises(RequestError) as mine:
        configured(values)
    assert str(mine.value) == str(caught.value)
    with pytest.raises(OmegaConfBaseException):
        merged(values)
