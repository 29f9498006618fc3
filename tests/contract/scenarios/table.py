"""All rows of the table."""

from tests.contract.scenarios import access, reading, sending

TABLE = (*access.SCENARIOS, *sending.SCENARIOS, *reading.SCENARIOS)
