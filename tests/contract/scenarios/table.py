"""All rows of the table."""

from tests.contract.scenarios import access, cards, push, reading, sending

TABLE = (*access.SCENARIOS, *sending.SCENARIOS, *reading.SCENARIOS, *push.SCENARIOS, *cards.SCENARIOS)
