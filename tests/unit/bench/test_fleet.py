"""A fleet is what an API server would store: objects that lead to one another by uid."""

import asyncio
import subprocess
import sys

import pytest

from tests.bench.harness import process_memory, process_tree
from tests.bench.load.pod_clients import _status
from tests.bench.objects.fleet import Fleet, pod, workload

FLEET = Fleet(namespaces=3, roots=7, pods=4, replicas=9)


def test_a_pod_leads_to_its_deployment_by_uids() -> None:
    deployment, replicas = workload(FLEET.deployment(5)), workload(FLEET.replica_set(5))
    owner, above = pod(FLEET.pod(5, 2)).metadata.controller(), replicas.metadata.controller()
    assert owner is not None
    assert above is not None
    assert owner.uid == replicas.metadata.uid
    assert above.uid == deployment.metadata.uid
    assert (deployment.spec or {})["replicas"] == 9


def test_no_two_objects_of_a_fleet_are_the_same() -> None:
    pods = [pod(FLEET.pod(*member)).metadata for member in FLEET.members()]
    others = [pod(FLEET.pod(root, number, "b")).metadata for root, number in FLEET.members()]
    assert len({metadata.uid for metadata in (*pods, *others)}) == 2 * FLEET.roots * FLEET.pods
    assert len({(metadata.namespace, metadata.name) for metadata in (*pods, *others)}) == len(
        pods + others
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
async def test_an_answer_is_read_to_its_end(answer: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(2 * answer)
    reader.feed_eof()
    assert [await _status(reader), await _status(reader)] == [409, 409]
    assert reader.at_eof()


def test_the_peak_remembers_what_is_free_again() -> None:
    process_memory.forget_peak()
    before = process_memory.resident()
    len(bytearray(b"x" * (64 * 2**20)))
    assert process_memory.peak() - before > 60 * 2**20
    assert process_memory.resident() - before < 60 * 2**20


def test_the_computing_of_children_counts_while_they_live() -> None:
    before = process_tree.computed()
    busy = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process_tree.computed() - before >= 0.28
        child.communicate(b"\n")
