import asyncio, json, time
import pytest
from support.kubelets.recording_plugin import plugin_at, RESOURCE
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.tenant import Tenant, tenant
from tests.e2e.install.rig.images import BUSYBOX
from vgpu_native.plugin.kubelet.generated import podresources_pb2 as pods_api
from vgpu_native.plugin.kubelet.generated.podresources_pb2_grpc import PodResourcesListerStub
import grpc
pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(900)]

def c(name, n, command=None, **more):
    return {"name": name, "image": BUSYBOX, "imagePullPolicy": "Never", "command": command or ["sleep", "1000"], "resources": {"limits": {RESOURCE: str(n)}} if n else {}, **more}
def pod(name, *containers, first=(), **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": "a", "restartPolicy": "Always", "terminationGracePeriodSeconds": 0, "containers": list(containers), "initContainers": list(first), "automountServiceAccountToken": False, **spec}}

def show(plugin, since=0):
    for call in plugin.calls[since:]:
        entries = json.loads(call.checkpoint)["Data"] if call.checkpoint else {}
        mine = [(e["ContainerName"], e["DeviceIDs"]) for e in entries.get("PodDeviceEntries") or () if e["ResourceName"] == RESOURCE]
        print("   %9.3f" % (call.time % 1000), call.name, call.ids, "| checkpoint:", mine, "registered", sorted((entries.get("RegisteredDevices") or {}).get(RESOURCE) or ()))
    return len(plugin.calls)

def test_explore(gpus: GpuCluster) -> None:
    with tenant(gpus, "explore") as team:
        asyncio.run(explore(gpus, team))

async def explore(gpus, team):
    plugins = gpus.node.disk / "lib/kubelet/device-plugins"
    def status(name):
        st = team.pod(name)["status"]
        return st["phase"], st.get("reason"), st.get("message"), [ (s["name"], s["state"], s["restartCount"]) for s in st.get("initContainerStatuses", []) + st.get("containerStatuses", [])]
    async def until(look, wanted, within=60):
        end = time.monotonic()+within
        while not wanted(v := look()):
            if time.monotonic() > end: print("   TIMEOUT", v); break
            await asyncio.sleep(0.05)
        return v
    def alloc():
        st = gpus.api.must("GET", "/api/v1/nodes/a")["status"]
        return st["capacity"].get(RESOURCE), st["allocatable"].get(RESOURCE)
    def cp():
        return [(e["PodUID"][:4], e["ContainerName"], e["DeviceIDs"]) for e in json.loads((plugins/"kubelet_internal_checkpoint").read_text())["Data"]["PodDeviceEntries"] or () if e["ResourceName"] == RESOURCE]
    async def res():
        async with grpc.aio.insecure_channel(f"unix:{gpus.node.disk}/lib/kubelet/pod-resources/kubelet.sock") as ch:
            a = await PodResourcesListerStub(ch).List(pods_api.ListPodResourcesRequest(), timeout=5)
        return [(p.namespace, p.name, [(k.name, [(d.resource_name, list(d.device_ids)) for d in k.devices]) for k in p.containers]) for p in a.pod_resources]
    names = [f"t{i}" for i in range(6)]
    async with plugin_at(plugins, "thing.sock", *names) as p:
        print("A register", alloc()); t=time.monotonic(); await p.register(); print("   register took", time.monotonic()-t)
        await p.wait("ListAndWatch"); n = show(p)
        print(await until(alloc, lambda v: v[1] == "6"), "after", time.monotonic()-t)
        print("B one pod, 2 devices"); team.post(pod("b", c("main", 2))); await until(lambda: status("b"), lambda s: s[0]=="Running"); n = show(p, n)
        print("  ", status("b")); print("   res", await res())
        print("C init and sidecar and two mains"); team.post(pod("c", c("main", 1), c("other", 1), first=(c("init", 1, ["true"]), c("side", 1, restartPolicy="Always")))); await until(lambda: status("c"), lambda s: s[0]=="Running"); await asyncio.sleep(1); n = show(p, n)
        print("   cp", cp()); print("   res", await res())
        team.delete("c"); await until(lambda: [x["metadata"]["name"] for x in team.pods()], lambda l: "c" not in l)
        print("I after deletion cp", cp()); print("   res", [r for r in await res() if r[0]=="explore"])
        print("D prestart fails twice"); p.failures["PreStartContainer"] = 2; team.post(pod("d", c("main", 1))); await asyncio.sleep(1.5); print("  ", status("d")); await until(lambda: status("d"), lambda s: s[3] and "running" in s[3][0][1], 90); n = show(p, n); print("  ", team.events("d"))
        print("   cp", cp())
        print("E allocate fails"); p.failures["Allocate"] = 1; team.post(pod("e", c("main", 1))); await until(lambda: status("e"), lambda s: s[0]=="Failed"); n = show(p, n); print("  ", status("e"), cp(), [r for r in await res() if r[0]=="explore"])
        print("E2 allocate fails for the second container"); 
        async def second():
            await p.wait("Allocate", len(p.of("Allocate"))+1); p.failures["Allocate"] = 1
        task = asyncio.create_task(second()); team.post(pod("e2", c("main", 1), c("other", 1))); await until(lambda: status("e2"), lambda s: s[0]!="Pending"); await task; n = show(p, n); print("  ", status("e2"), cp()); p.failures.clear()
        print("K too many"); team.post(pod("k", c("main", 7))); await until(lambda: status("k"), lambda s: s[0]=="Failed"); n = show(p, n); print("  ", status("k"))
        print("F container restart"); team.post(pod("f", c("main", 1, ["sleep", "1"]))); await until(lambda: status("f"), lambda s: s[3] and s[3][0][2] >= 2); n = show(p, n); print("  ", status("f"))
        team.delete("f")
        print("I2 pod that ends"); team.post(pod("i", c("main", 1, ["true"]), restartPolicy="Never")); await until(lambda: status("i"), lambda s: s[0]=="Succeeded"); await asyncio.sleep(0.5); n = show(p, n); print("   cp", cp()); print("   res", [r for r in await res() if r[0]=="explore"])
        print("H unhealthy"); p.turn("t0", "Unhealthy"); print("  ", await until(alloc, lambda v: v[1] == "5"))
        p.turn("t0", "Healthy"); print("  ", await until(alloc, lambda v: v[1] == "6"))
        print("H2 register again same endpoint"); await p.register(); await asyncio.sleep(1); n = show(p, n); print("   watchers", p.watchers, alloc())
        async with plugin_at(plugins, "thing2.sock", *names) as q:
            print("H3 register another endpoint"); await q.register(); await asyncio.sleep(1.5); m = show(q); n = show(p, n); print("   watchers", p.watchers, q.watchers, alloc())
        await asyncio.sleep(0.2); print("   second gone", await until(alloc, lambda v: v[1] != "6", 10), p.watchers)
        print("   b", status("b")); t=time.monotonic(); await p.register(); print("   again", await until(alloc, lambda v: v[1] == "6"), time.monotonic()-t); n = show(p, n)
        print("G kubelet restart"); before = p.watchers; gpus.node.down("kubelet"); await asyncio.sleep(0.3); print("   down watchers", p.watchers, "socket", p.socket.exists()); gpus.node.up("kubelet")
        t=time.monotonic(); await until(lambda: p.socket.exists(), lambda v: not v, 20); print("   socket removed after", time.monotonic()-t, [x.name for x in plugins.iterdir()]); n = show(p, n)
        await until(lambda: (plugins/"kubelet.sock").exists(), bool); await asyncio.sleep(3); print("   cp", cp(), alloc(), status("b"))
        print("   res", [r for r in await res() if r[0]=="explore"])
        print("G2 pod before registration"); team.post(pod("g", c("main", 1))); await until(lambda: status("g"), lambda s: s[0]=="Failed", 20); print("  ", status("g"))
        print("G3 container b killed before registration"); gpus.node.end("sleep", "1000"); await until(lambda: status("b"), lambda s: s[3][0][2] >= 1, 30); print("  ", status("b")); 
        await p.stop(); await p.start(); t=time.monotonic(); await p.register(); print("   again", await until(alloc, lambda v: v[1] == "6"), time.monotonic()-t); n = show(p, n); print("   cp", cp())
        print("   res", [r for r in await res() if r[0]=="explore"])
        print("L kubelet restart with a pod that is bound while it is down"); gpus.node.down("kubelet"); team.post(pod("l", c("main", 1))); await asyncio.sleep(0.3); gpus.node.up("kubelet"); await until(lambda: p.socket.exists(), lambda v: not v, 20); await p.stop(); await p.start()
        for _ in range(50):
            try: await p.register(); break
            except Exception as e: await asyncio.sleep(0.05)
        await until(lambda: status("l"), lambda s: s[0]!="Pending", 30); n = show(p, n); print("  ", status("l"))
        p2 = gpus.node.disk
        print("M plugin killed"); await p.stop(); print("  ", await until(alloc, lambda v: v[1] != "6", 20)); print("   cp", (plugins/"kubelet_internal_checkpoint").read_text()[-300:])
