"""What one lifecycle of the benchmark is: the same message, artifact and answer on both sides."""

AGENT = "lifecycle"
ARTIFACT_ID = "report"
CHUNKS = ("The first half of an answer of some length. " * 4, "And the second half, a little shorter. " * 4)
EVENTS_PER_LIFECYCLE = 5  # submitted, WORKING, two artifact events, COMPLETED
