"""Release review: a conversation of two turns with each official client, and an unchanged AgentExecutor behind the
broker.
"""

from pathlib import Path

import pytest

from tests.interop.conftest import OWNER, Agent
from tests.interop.messages import artifacts, say, shorts, state, text
from tests.interop.worker_process import WorkerProcess

pytestmark = pytest.mark.interop

TARGET = "examples.release_review:ReleaseReview"


async def test_release_review_asks_for_a_release_and_reviews_the_one_it_gets(agent: Agent, tmp_path: Path) -> None:
    worker = WorkerProcess(agent.replicas[0].base_url, agent.name, OWNER, TARGET, tmp_path / "worker.log")
    worker.start()
    try:
        user = agent.user()
        waiting = await user.send(say("Please review the release."))
        assert state(waiting) == "INPUT_REQUIRED"
        assert "service@1.2.3" in text(waiting["status"]["message"])

        items = await user.stream(say("It is checkout@2.0.1", taskId=waiting["id"])).rest()
        shown = [text(item["statusUpdate"]["status"]["message"]) for item in items if message_of(item)]
        assert shown == ["Reviewing checkout 2.0.1", "checkout 2.0.1 is reviewed"]
        assert [name.partition("=")[0] for name in shorts(items)[-3:]] == ["WORKING", "review", "COMPLETED"]

        done = await user.get(waiting["id"])
        assert "checkout 2.0.1 is a patch release" in artifacts(done)["review"]
        assert [text(message) for message in done["history"]] == [
            "Please review the release.",
            "Which release? Name it as service@1.2.3",
            "It is checkout@2.0.1",
            "Reviewing checkout 2.0.1",
        ]
    finally:
        worker.close()


def message_of(item: dict[str, dict[str, dict[str, object]]]) -> bool:
    return "statusUpdate" in item and "message" in item["statusUpdate"]["status"]
