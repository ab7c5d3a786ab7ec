"""Addresses of MLflow's pages, and filters for commands whatever they are called."""

import pytest

from runner.track.dashboard import told_at
from runner.track.pages import address_of, command_filter, digest_of, page_of_view


@pytest.mark.parametrize("name", ["20260101T000000Z-x-1", "it's", 'say "so"', "a`b", "100%", "x\\", "<b>", "é"])
def test_a_command_is_found_by_its_digest_whatever_its_name(name):
    assert command_filter(name) == f"tags.`symlab.command_digest` = '{digest_of(name)}'"


def test_an_address_has_no_password():
    assert address_of("http://me:pa55@host:5000/base/", "#/x") == "http://host:5000/base/#/x"
    assert told_at("http://me:pa55@host:5000", "#/x") == "http://host:5000/#/x"


def test_a_views_address_names_experiment_and_view():
    assert page_of_view("3", "key") == (
        "#/experiments/3/runs?viewStateShareKey=key&compareRunsMode=CHART&workflowType=machine_learning"
    )
