"""Trusted identities of the settings, and an import's advice about HAMi's accounts."""

import tomllib
from pathlib import Path

from msgspec.structs import replace

from extender.settlement.hami.hami_import import ImportProblem, ImportReport
from gpuledger.changes.one_time_hami_import import with_accounts
from gpuledger.commands.import_hami import account_lines
from gpuledger.wiring import admission_from_settings, webhook_scope
from gpuledger.wiring.trusted_identities import trusted_identities
from ledger.kube.cluster.hami_accounts import HamiAccount, HamiAccounts
from ledger.runtime.settings.settings import Settings
from webhook.context.admission_settings import HAMI_IDENTITIES

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "from-hami.md"
OWN = (
    "system:serviceaccount:gpuledger-system:gpuledger",
    "system:serviceaccount:gpuledger-system:gpuledger-scheduler",
)
SCHEDULER = HamiAccount("system:serviceaccount:gpu:vgpu-hami-scheduler", "Deployment gpu/scheduler")
PLUGIN = HamiAccount("system:serviceaccount:gpu:vgpu-hami-device-plugin", "DaemonSet gpu/plugin")
COPY = HamiAccount("system:serviceaccount:team:default", "Deployment team/copy")
NOTHING = ImportReport(False, 0, 0, 0, 0, (), ())


def test_the_setting_adds_to_hamis_usual_accounts() -> None:
    settings = Settings(trusted_identities=(PLUGIN.user,))
    assert trusted_identities(settings) == (*HAMI_IDENTITIES, PLUGIN.user, *OWN)
    assert admission_from_settings.admission_settings(settings).trusted == trusted_identities(
        settings
    )


def test_hamis_usual_accounts_can_be_left_out() -> None:
    settings = Settings(trusted_identities=(PLUGIN.user,), trust_hami_defaults=False)
    assert trusted_identities(settings) == (PLUGIN.user, *OWN)
    assert webhook_scope.review_scope(settings).trusted == (PLUGIN.user, *OWN)


def test_an_import_prints_the_whole_setting_with_what_it_has_already() -> None:
    settings = Settings(trusted_identities=(PLUGIN.user,))
    report = with_accounts(settings, NOTHING, HamiAccounts((SCHEDULER, PLUGIN), (COPY,)))
    [line] = report.settings
    assert tomllib.loads(line) == {"trusted_identities": [PLUGIN.user, SCHEDULER.user]}
    said = account_lines(report.accounts or HamiAccounts(), report.settings)
    assert said == [
        f"HAMi writes as {SCHEDULER.user} (Deployment gpu/scheduler).",
        f"HAMi writes as {PLUGIN.user} (DaemonSet gpu/plugin).",
        f"Not HAMi's: {COPY.user} (Deployment team/copy) may not patch all pods and nodes.",
        "The webhooks refuse HAMi's annotations until the settings have:",
        line,
    ]


def test_an_import_names_a_scheduler_of_another_name() -> None:
    trusted = Settings(trusted_identities=(SCHEDULER.user,), card_schedulers=("mine",))
    usual = replace(SCHEDULER, scheduler="hami-scheduler")
    assert with_accounts(trusted, NOTHING, HamiAccounts((usual,))).settings == ()
    report = with_accounts(
        trusted, NOTHING, HamiAccounts((replace(SCHEDULER, scheduler="theirs"),))
    )
    assert report.settings == ('card_schedulers = ["mine", "theirs"]',)
    assert account_lines(HamiAccounts((SCHEDULER,)), report.settings)[1:] == [
        "The webhooks ignore HAMi's scheduler until the settings have:",
        *report.settings,
    ]


def test_an_import_prints_no_setting_where_all_are_trusted() -> None:
    usual = HamiAccount(HAMI_IDENTITIES[0], "Deployment kube-system/hami-scheduler")
    report = with_accounts(Settings(), NOTHING, HamiAccounts((usual,)))
    assert report.settings == ()
    assert account_lines(report.accounts or HamiAccounts(), ())[-1] == (
        "The webhooks trust these accounts."
    )


def test_import_reports_unchecked_accounts() -> None:
    said = account_lines(HamiAccounts(unproven_more=3, unasked=7), ())
    assert said == [
        "No HAMi was found: no Deployment or DaemonSet with its labels or image has its rights.",
        "Not HAMi's, without these rights: 3 more accounts.",
        "Not checked: 7 more accounts of workloads similar to HAMi's.",
    ]


def test_import_reports_when_it_may_not_list_accounts() -> None:
    problem = ImportProblem("accounts", "of HAMi", "403")
    report = with_accounts(Settings(), NOTHING, problem)
    assert (report.problems, report.accounts, report.settings) == ((problem,), None, ())


def test_the_page_shows_what_an_import_prints() -> None:
    pairs = (("scheduler", "Deployment"), ("device-plugin", "DaemonSet"))
    names = [(kind, f"vgpu-hami-{part}") for part, kind in pairs]
    accounts = HamiAccounts(
        tuple(
            HamiAccount(f"system:serviceaccount:gpu-tools:{name}", f"{kind} gpu-tools/{name}")
            for kind, name in names
        )
    )
    report = with_accounts(Settings(), NOTHING, accounts)
    assert "\n".join(account_lines(accounts, report.settings)) in PAGE.read_text()
