"""GetExtendedAgentCard (A2A v1.0 §3.1.11)."""

from tests.contract.scenarios import Scenario, worlds

CARD = "GetExtendedAgentCard"
SCENARIOS = (
    Scenario("an extended card", CARD, ("card more of it",), worlds.with_extended_card),
    Scenario("an extended card that is not declared", CARD, "UNSUPPORTED_OPERATION"),
    Scenario("an extended card that is declared and was never given", CARD, "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
             worlds.declaring_an_extended_card),
)  # fmt: skip
