"""Canaries: the messages that are hidden are still those of the libraries."""

from __future__ import annotations

import inspect
import logging
import re
from importlib import import_module

import pytest
from torch.distributed.nn import functional
from torch.nn.parallel import distributed

from sentence_experts.compat.messages import HIDDEN, WARNINGS, hide_messages


@pytest.mark.parametrize("name", HIDDEN)
def test_a_message_is_hidden_and_others_of_its_logger_are_not(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert HIDDEN[name] in inspect.getsource(import_module(name))
    hide_messages()
    hide_messages()
    own = logging.getLogger(name)
    before, own.propagate = own.propagate, True
    own.addHandler(caplog.handler)
    try:
        own.warning(f"{HIDDEN[name]} 'x'. More.")
        own.warning("another")
    finally:
        own.propagate = before
        own.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records} == {"another"}


def test_the_warnings_that_are_hidden_are_still_given() -> None:
    given = (inspect.getsource(distributed), inspect.getsource(functional).replace("{name}", "all_gather"))
    assert all(re.search(warning, source) for warning, source in zip(WARNINGS, given, strict=True))
