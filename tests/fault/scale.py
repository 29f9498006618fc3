"""How large the fault tests are: 1 in CI; ``make chaos`` sets WAYSTATION_FAULT_SCALE."""

import os

SCALE = int(os.environ.get("WAYSTATION_FAULT_SCALE", "1"))
