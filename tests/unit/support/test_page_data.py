"""The data of the page tests: one log for one end, with what the pages are to show."""

from pathlib import Path

from support.page_data.day_cluster import QUOTAS
from support.page_data.hostile_names import LONG, hostile_day
from support.page_data.stored_day import project_day
from support.page_data.working_day import working_day

from ledger.core.model.denials import Reason
from ledger.log.writer import denial_log
from projections.queries.card_usage import cards
from projections.queries.drift_report import drift
from projections.queries.holders import holders
from projections.queries.query_scope import EVERYTHING
from projections.queries.quota_usage import usage
from projections.store.readers import Readers

END = 1_790_000_000_000_000


def test_a_day_is_the_same_log_each_time() -> None:
    assert working_day(END) == working_day(END)
    assert working_day(END) != working_day(END + 1)


def test_denials_of_a_day_have_the_three_reasons_for_no_room() -> None:
    reasons = {denial_log.decode(payload).denial.reason for payload in working_day(END).denials}
    assert reasons == {Reason.EXCEEDS_LIMIT, Reason.UNIVERSE_EXCEEDED, Reason.QUOTA_EXCEEDED}


async def test_a_day_leaves_faults_drift_and_an_exceeded_quota(tmp_path: Path) -> None:
    path = tmp_path / "projection.sqlite"
    await project_day(path, working_day(END))
    async with Readers(path) as readers, readers.view() as view:
        lines, _ = await usage(view, view.head.position, EVERYTHING, limit=100)
        listed, _ = await cards(view, view.head.position, limit=100)
        corrections, _ = await drift(view, EVERYTHING, limit=100)
    over = {(line.cluster, line.namespace) for line in lines if line.free < 0}
    assert over == {("berlin", "robotics")}
    assert {f"{line.cluster}/{line.namespace}" for line in lines} == {*QUOTAS, "/"}
    assert len(listed) == 40
    assert {card.state for card in listed} == {"announced", "lost"}
    assert [card.index for card in listed if not card.health] == [5]
    assert [correction.cause for correction in corrections] == ["deleted", "unreserved"]


async def test_hostile_names_are_stored_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "projection.sqlite"
    await project_day(path, hostile_day(END))
    async with Readers(path) as readers, readers.view() as view:
        listed, _ = await holders(view, view.head.position, EVERYTHING, limit=100)
    assert f"pods/{LONG}-alone" in {holder.key for holder in listed}
