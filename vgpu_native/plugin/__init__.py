"""The kubelet's device plugin: advertises slots of cards and assigns responses to containers.

The plugin relies on this behaviour of the kubelet, read in the source of releases 1.26 to 1.35, and
tested on 1.36 (`tests/e2e/real_node/test_kubelet_contract.py`):

* `Allocate` names device ids but no pod, and has **no deadline**. The kubelet admits pods one after
  the other and waits in its main loop. So the plugin must respond soon. A pod whose `Allocate`
  fails is rejected for good (`UnexpectedAdmissionError`); its controller creates another pod.
* The kubelet stores each response in memory with the ids, by the pod's uid and the container's
  name. It writes ids **and response** to its checkpoint before it continues with the next
  container, and lists the ids in the pod-resources API. That API omits init containers that are
  not sidecars, and identifies pods by name only. The checkpoint has every container, and uids. So
  the plugin can read at the next `Allocate` which container got the last response. It holds no
  lock between the calls.
* An app container receives the ids of its pod's init containers again. So ids identify a pod, but
  not a container of it. A mark in the response does, because the checkpoint keeps the response.
* `PreStartContainer` precedes every start, with a deadline of 30 s. When it fails, the container
  waits (`CreateContainerConfigError`) and the kubelet tries again **with the same ids and
  response**; it does not repeat `Allocate`. So the plugin can correct limits until the start,
  because they are in a mounted file, but not the cards in the response. A response that only names
  a CDI device is filled in at the start, and so is never wrong.
* Of two variables with one name, or two mounts with one path, the pod's own wins over that of the
  response. The runtime applies a CDI device last, so the device wins over the pod. To keep tenants
  from choosing cards, use the setting `cdi`, or an admission policy that refuses pods with these
  names and paths.
* A starting kubelet removes all sockets from its directory and forgets all plugins. Until the
  plugin registers again, containers restart without `PreStartContainer`, with the old responses.
* The end of any `ListAndWatch` of the resource disconnects the plugin that is registered then. So a
  plugin that registers while its predecessor still runs is disconnected when that one ends, and has
  to register once more.
"""
