"""Story of the demo: eleven steps, from an empty directory to a service that ended cleanly."""

import asyncio
import itertools
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from gpuledger.cli.progress import bar
from gpuledger.demo import checks, narration, recordings, service_state, traffic
from gpuledger.demo.failed_claim import FailedClaim
from gpuledger.demo.narration import Narrator
from gpuledger.demo.recordings import Creation
from gpuledger.demo.service import DemoService
from gpuledger.demo.service_state import digest_left_behind
from gpuledger.demo.traffic import CreationOutcome, ReviewAnswer
from ledger.core.model.denials import Reason
from ledger.log.embedded.store_lock import StoreBusy
from projections.store.digest import Digest
from projections.store.store_writer import StoreError

QUOTAS: Final = {
    "research": ("requests.nvidia.com/gpu=330", "limits.nvidia.com/gpumem=3200k"),
    "serving": ("requests.nvidia.com/gpu=60", "limits.nvidia.com/gpumem=600k"),
}
"""The two namespaces and what they may have: cards, and MiB of their memory."""

FIRST: Final = 120
"""Pods that each namespace asks for at first."""

THEN: Final = 300
"""Pods that one namespace asks for in the traffic that is cut off."""

KILLED_AT: Final = 120
"""The validating review of that traffic at which the service is killed, with others in flight."""

REVIEWS: Final = 2
"""Per pod: one to the mutating webhook, one to the validating."""

_WEBHOOK: Final = "pods.validate.gpuledger.io"


class Story:
    """Runs the steps with one service."""

    def __init__(self, service: DemoService, narrator: Narrator) -> None:
        """Prepare; `run` executes the steps."""
        self._service, self._out = service, narrator
        self._recordings = recordings.load()
        self._requests = recordings.CreationFactory(self._recordings)
        self._answers: list[ReviewAnswer] = []

    async def run(self) -> None:
        """Run all steps. Raises FailedClaim for the first claim that does not hold."""
        self._out.opening(
            "The life of a ledger: quotas, traffic, a crash and an audit, on this machine alone."
            " Every `ok` was checked."
        )
        await self._start()
        await self._limit()
        await self._admit()
        await self._deny()
        cut_off = await self._kill()
        killed = await self._look_at_what_is_left()
        await self._start_again(cut_off)
        await self._repeat(cut_off)
        await self._rebuild(killed)
        await self._audit()
        await self._end()

    async def _start(self) -> None:
        with self._out.step("Start the service: log, webhooks and read side are one command"):
            self._out.command(f"gpuledger serve --no-kubernetes --store-dir {self._service.store}")
            await self._service.start()
            self._out.line(f"ready at {self._service.url}, with a CA of its own")

    async def _limit(self) -> None:
        with self._out.step("Give two namespaces a quota each"):
            commands = [
                ("quota", "set", "-n", namespace, "gpus", *limits)
                for namespace, limits in QUOTAS.items()
            ]
            for command in commands:
                self._out.command(f"gpuledger {' '.join(command)}")
            await asyncio.gather(*(self._service.command(*command) for command in commands))

    async def _admit(self) -> None:
        pods = self._requests.make(FIRST, tuple(QUOTAS))
        reviews = len(pods) * REVIEWS
        with self._out.step(f"Ask for {len(pods)} pods: {reviews} AdmissionReviews over HTTPS"):
            server = self._recordings[0].server
            self._out.line(f"recorded from {server}; names, namespaces and uids are varied")
            answers = await self._send(pods)
            self._out.claim(checks.all_requests_answered(answers))
            self._out.claim(checks.denials_are_right(answers))
            self._out.claim(checks.within_limits(await service_state.read(self._service)))
            await self._show("usage")

    async def _deny(self) -> None:
        with self._out.step("This is what the user of a denied pod reads"):
            denied = next(answer for answer in self._answers if answer.names(Reason.QUOTA_EXCEEDED))
            self._out.command(f"kubectl -n {denied.creation.namespace} create -f pod.yaml")
            self._out.line(
                f'Error from server (Forbidden): admission webhook "{_WEBHOOK}" denied the'
                f" request: {denied.message}"
            )

    async def _kill(self) -> list[ReviewAnswer]:
        """Kill the service in the middle of traffic and return the requests without an answer."""
        pods = self._requests.make(THEN, ("research",))
        with self._out.step(f"Ask for {THEN} more, and kill the service in the middle: SIGKILL"):
            answers = await self._send(pods, kill_at=KILLED_AT)
            await self._service.wait()
            self._out.claim(checks.interrupted(answers))
        return [answer for answer in answers if answer.outcome is CreationOutcome.UNANSWERED]

    async def _look_at_what_is_left(self) -> Digest:
        with self._out.step("Look at what the killed service left behind"):
            killed = await digest_left_behind(self._service.store)
            self._out.line(f"its projection had reached position P = {killed.position}")
            self._out.line(f"digest at P {killed.digest}")
        return killed

    async def _start_again(self, cut_off: list[ReviewAnswer]) -> None:
        with self._out.step("Start it again"):
            await self._service.start()
            state = await service_state.read(self._service)
            self._out.claim(checks.nothing_lost(state, self._allowed()))
            self._out.claim(checks.nothing_invented(state, self._allowed(), cut_off))
            self._out.claim(checks.within_limits(state))
            held = {hold.uid for hold in state.holds}
            self._answers += [_stored(answer) for answer in cut_off if answer.creation.uid in held]

    async def _repeat(self, cut_off: list[ReviewAnswer]) -> None:
        pods = [self._requests.again(answer.creation) for answer in cut_off]
        with self._out.step(f"Repeat the {len(pods)} requests without an answer, as clients do"):
            answers = await self._send(pods)
            self._out.claim(checks.all_requests_answered(answers))
            state = await service_state.read(self._service)
            self._out.claim(checks.charged_once(state, self._allowed()))
            self._out.claim(checks.within_limits(state))
            await self._show("usage")

    async def _rebuild(self, killed: Digest) -> None:
        with self._out.step("Build a second projection from the log, up to P"):
            arguments = ("projection", "compare", "--at", str(killed.position))
            self._out.claim(checks.same_digest(killed, await self._show_object(*arguments)))

    async def _audit(self) -> None:
        with self._out.step("Audit: who did what to serving, and is the log what it was?"):
            arguments = ("audit", "replay", "-n", "serving")
            await self._show(*arguments)
            ended = await self._service.command(*arguments, "-o", "json")
            events = [msgspec.json.decode(line) for line in ended.out.splitlines()]
            self._out.claim(checks.audit_lists_all(events, "serving", self._allowed()))
            report = await self._show_object("audit", "verify")
            self._out.claim(checks.log_is_intact(report, events[-1]["position"]))

    async def _end(self) -> None:
        with self._out.step("End the service: SIGTERM"):
            try:
                status = await self._service.stop()
            except TimeoutError as error:
                raise FailedClaim("the service ends cleanly", "it takes too long") from error
            self._out.claim(checks.ended_cleanly(status))

    async def _show(self, *arguments: str) -> None:
        """Show a command and what it prints."""
        self._out.command(f"gpuledger {' '.join(arguments)}")
        ended = await self._service.command(*arguments, columns=self._out.columns)
        self._out.block(narration.excerpt(ended.out))

    async def _show_object(self, *arguments: str) -> Any:
        """Show a command and the YAML that it prints, and return the object."""
        arguments = (*arguments, "-o", "yaml")
        self._out.command(f"gpuledger {' '.join(arguments)}")
        ended = await self._service.command(*arguments, statuses=(0, 1))
        self._out.block(ended.out)
        return msgspec.yaml.decode(ended.out)

    async def _send(self, pods: list[Creation], kill_at: int = 0) -> list[ReviewAnswer]:
        """Send requests with a progress bar; kill the service at a validating review, 0 for not."""
        asked, answered = itertools.count(1), itertools.count(1)

        def ask() -> None:
            if next(asked) == kill_at:
                self._service.kill()

        with bar("creating pods") as progress:
            answers = await traffic.send(
                self._service, pods, ask, lambda: progress(next(answered), len(pods))
            )
        self._answers += answers
        return answers

    def _allowed(self) -> list[Creation]:
        """Return the creations that were allowed, and those found stored afterwards."""
        return [
            answer.creation for answer in self._answers if answer.outcome is CreationOutcome.ALLOWED
        ]


def _stored(answer: ReviewAnswer) -> ReviewAnswer:
    """Return the answer that the client would have got if the service had not been killed."""
    return msgspec.structs.replace(answer, outcome=CreationOutcome.ALLOWED)


_FAILURES: Final = (
    FailedClaim,
    StoreBusy,
    StoreError,
    TimeoutError,
    aiohttp.ClientError,
    OSError,
)
"""Errors that end the demo with status 1; any other is a defect of the demo."""


async def run(keep: bool) -> bool:
    """Run the demo; returns whether every claim held. The store is kept with `keep` or if not.

    Interrupted, it ends the service and removes everything.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpuledger-demo-"))
    narrator, service = Narrator(), DemoService(folder)
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        stack.push_async_callback(service.close)
        held = await _run_story(service, narrator)
        await service.close()
        if keep or not held:
            _print_location(service, narrator)
            stack.pop_all()
    return held


async def _run_story(service: DemoService, narrator: Narrator) -> bool:
    """Run the story; returns whether all claims held."""
    try:
        await Story(service, narrator).run()
    except _FAILURES as error:
        narrator.closing(f"FAILED: {error or type(error).__name__}")
        narrator.line(f"The end of the service's log, {service.log}:")
        narrator.block("\n".join(service.tail()))
        return False
    narrator.closing(f"All {narrator.claims} claims held, in {narrator.seconds:.0f} s.")
    return True


def _print_location(service: DemoService, narrator: Narrator) -> None:
    narrator.closing(f"The ledger stays in {service.store}. Look around in it:")
    for command in ("usage", "holders -n serving", "denials", "page"):
        narrator.command(f"gpuledger {command} --store-dir {service.store}")
    narrator.line(f"and remove it with: rm -r {service.store.parent}")
