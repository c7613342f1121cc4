"""What the routes of a model are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import pytest

from sentence_experts.errors import InputError
from sentence_experts.models.routes.kinds import ROUTE_KINDS, route_kind, route_kind_with
from sentence_experts.models.surgery.extend_config import ExtendConfig
from sentence_experts.models.surgery.route_plan import PlannedRoute, RoutePlan

PLANS = {
    "token": RoutePlan(("a",), (PlannedRoute("a", "a"),)),
    "prefix": RoutePlan(("a",), (PlannedRoute("a", "a", "a: "),)),
    "mixed": RoutePlan(("a", "b"), (PlannedRoute("a", "a"), PlannedRoute("b", "b", "b: "))),
    "none": RoutePlan(("a",)),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_of_the_kind_that_its_routes_make(name: str) -> None:
    kind = PLANS[name].kind
    assert kind.name == name
    assert kind.has_routes is bool(PLANS[name].routes)
    assert route_kind(SimpleNamespace(route_kind=name)) is kind


def test_every_combination_has_one_kind_and_every_choice_of_extend_is_one() -> None:
    assert {route_kind_with(tokens, texts) for tokens in (True, False) for texts in (True, False)} == {
        *ROUTE_KINDS.values()
    }
    assert set(get_args(ExtendConfig.model_fields["route"].annotation)) <= set(ROUTE_KINDS)


def test_an_unknown_kind_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="route_kind 'star'; known: token, prefix, mixed, none"):
        route_kind(SimpleNamespace(route_kind="star"))
