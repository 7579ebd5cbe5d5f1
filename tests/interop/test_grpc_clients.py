"""The official clients for gRPC, of four languages with their default settings, at our proxy and at Apache's:
the same programs, the same outcomes."""

from __future__ import annotations

import pytest

from tests.interop.kit.grpc.expected import expected_at_apache, expected_at_ours
from tests.interop.kit.grpc.outcomes import Outcomes
from tests.interop.kit.grpc.scenarios import SCENARIOS
from tests.interop.kit.grpc.sides import APACHE, KOUROU

pytestmark = pytest.mark.interop

LANGUAGES = ("java", "go", "python", "node")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_has_the_same_outcome_at_our_proxy_and_at_apaches(
    grpc_outcomes: Outcomes, scenario: str, language: str
) -> None:
    assert grpc_outcomes.of(scenario, language, APACHE) == expected_at_apache(scenario, language)
    assert grpc_outcomes.of(scenario, language, KOUROU) == expected_at_ours(scenario, language)
