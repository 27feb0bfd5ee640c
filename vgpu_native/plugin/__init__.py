"""The kubelet's device plugin: advertises slots of cards, and ties answers to containers.

What the kubelet does, read in its source (releases 1.26 to 1.35 agree), and what follows from it:

* `Allocate` names device ids and no pod, and has **no deadline**: the kubelet admits pods one after
  the other and waits in its main loop. So an answer must come soon, and a pod whose `Allocate`
  fails is rejected for good (`UnexpectedAdmissionError`); whoever controls it makes another.
* When an answer has arrived, the kubelet notes in memory, by the pod's uid and the container's
  name, the ids **and the answer itself**, writes both to its checkpoint before it goes on to the
  next container, and shows them in the pod-resources API. That API leaves out init containers that
  are no sidecars, and tells pods by name only; the checkpoint has every container, and uids. So
  who was answered is known when the next `Allocate` comes, and no lock is held meanwhile.
* An app container is given the ids of its pod's init containers again. Ids tell pods apart, but not
  the containers of one pod; what does is a mark in the answer, which the checkpoint keeps.
* `PreStartContainer` precedes every start, with a deadline of 30 s. When it fails, the container
  waits (`CreateContainerConfigError`) and is tried again, **with the same ids and answer**:
  `Allocate` is not repeated. So limits can be put right until the start, as they are in a file
  behind a mount, but cards that are in the answer cannot. An answer that only names a CDI device
  can be filled in at the start, and is never wrong.
* Variables of an answer come before those of the pod's spec, and its mounts before the pod's
  volumes: of two of one name or path, the pod's holds. What a CDI device adds, the runtime adds
  last, and that holds. So tenants who would rather choose for themselves need the setting `cdi`, or
  an admission policy that refuses pods with these names and paths.
* A kubelet that starts removes all sockets from its directory, and has forgotten all plugins. Until
  one registers again, containers restart without `PreStartContainer`, with the answers of before.
"""
