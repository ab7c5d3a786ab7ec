"""Addresses of MLflow's pages, and filters for commands whatever they are called."""

import pytest

from runner.track.dashboard import told_at
from runner.track.pages import address_of, command_filter, digest_of, page_of_view


@pytest.mark.parametrize("name", ["it's", 'say "so"', "a`b", "100%", "x\\", "<b>", "é"])
def test_a_name_that_needs_quoting_is_found_by_its_digest(name):
    assert command_filter(name) == f"tags.`symlab.command_digest` = '{digest_of(name)}'"


def test_a_plain_name_is_found_by_itself():
    assert command_filter("20260101T000000Z-x-1") == "tags.`symlab.command` = '20260101T000000Z-x-1'"


def test_an_address_has_no_password():
    assert address_of("http://me:pa55@host:5000/base/", "#/x") == "http://host:5000/base/#/x"
    assert told_at("http://me:pa55@host:5000", "#/x") == "http://host:5000/#/x"


def test_a_views_address_names_experiment_and_view():
    assert page_of_view("3", "key") == (
        "#/experiments/3/runs?viewStateShareKey=key&compareRunsMode=CHART&workflowType=machine_learning"
    )
