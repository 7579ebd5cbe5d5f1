"""The official clients for gRPC, of four languages with their default settings, at our proxy and at Apache's:
the same programs, the same outcomes."""

from __future__ import annotations

import pytest

from tests.interop.kit.grpc.expected import expected_at_apache, expected_at_ours, expected_before_apache
from tests.interop.kit.grpc.outcomes import Outcomes
from tests.interop.kit.grpc.scenarios import SCENARIOS
from tests.interop.kit.grpc.sides import APACHE, BEFORE_APACHE, KOUROU

pytestmark = pytest.mark.interop

LANGUAGES = ("java", "go", "python", "node")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_has_the_same_outcome_at_our_proxy_and_at_apaches(
    grpc_outcomes: Outcomes, scenario: str, language: str
) -> None:
    assert grpc_outcomes.of(scenario, language, APACHE) == expected_at_apache(scenario, language)
    assert grpc_outcomes.of(scenario, language, KOUROU) == expected_at_ours(scenario, language)


@pytest.mark.nightly
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_has_the_same_outcome_at_our_proxy_before_apaches_broker(
    grpc_outcomes_before_apache: Outcomes, scenario: str, language: str
) -> None:
    outcome = grpc_outcomes_before_apache.of(scenario, language, BEFORE_APACHE)
    assert outcome == expected_before_apache(scenario, language)
