{{/* Errors in values that the schema cannot express; each names the value and the remedy. */}}
{{- define "gpuledger.requirements" -}}
{{- if not .Values.cluster -}}
{{- fail "\n\ncluster is empty: set the permanent name of this cluster in the ledger, for example --set cluster=east-1. It cannot be changed later.\n" -}}
{{- end -}}
{{- include "gpuledger.nameRequirements" . -}}
{{- $own := fromYaml (include "gpuledger.ownSettings" .) -}}
{{- range $where, $map := dict "settings" .Values.settings "scheduler.settings" .Values.scheduler.settings "agent.settings" .Values.agent.settings -}}
{{- range $setting, $_ := $map -}}
{{- with get $own $setting -}}
{{- fail (printf "\n\n%s.%s: the chart writes this setting; set %s instead.\n" $where $setting .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.certManager.enabled .Values.certificates.existingSecret -}}
{{- fail "\n\ncertManager.enabled and certificates.existingSecret: set one of them.\n" -}}
{{- end -}}
{{- if and (eq .Values.nats.mode "external") (not .Values.nats.servers) -}}
{{- fail "\n\nnats.servers is empty: name your servers, for example --set nats.servers={nats://nats.example:4222}, or set nats.mode to single or cluster.\n" -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
{{- if has .name (list "store" "scratch" "configuration" "settings" "backups" "tls" "client-ca" "nats-ca") -}}
{{- fail (printf "\n\nextraVolumes: the pods of the chart have a volume %s of their own. Give yours another name, there and in extraVolumeMounts.\n" .name) -}}
{{- end -}}
{{- end -}}
{{- $external := eq .Values.nats.mode "external" -}}
{{- $byFile := include "gpuledger.loginByFile" . -}}
{{- if and $external (not .Values.nats.auth.existingSecret) (not $byFile) -}}
{{- fail "\n\nnats.auth.existingSecret is empty: nats.mode=external needs a Secret of this namespace with the key password, the password of nats.auth.user, or a file in settings.nats_creds or settings.nats_login_file.\n" -}}
{{- end -}}
{{- if and (not $external) (or .Values.settings.nats_creds .Values.settings.nats_login_file) -}}
{{- fail "\n\nsettings.nats_creds, settings.nats_login_file: the chart's own log servers have users with passwords. Set nats.mode=external, or leave these settings out.\n" -}}
{{- end -}}
{{- if and .Values.agent.enabled (or $external .Values.nats.auth.existingSecret) (not .Values.agent.auth.existingSecret) -}}
{{- fail "\n\nagent.auth.existingSecret is empty: with nats.auth.existingSecret or external servers, name a Secret of the agents' namespace with the key password, the log's password of agents.\n" -}}
{{- end -}}
{{- if and .Values.agent.enabled .Values.agent.auth.existingSecret (not $external) (not .Values.nats.auth.existingSecret) -}}
{{- fail "\n\nagent.auth.existingSecret: the log servers would have another password of agents, which the chart makes. Leave the value empty, or set nats.auth.existingSecret to a Secret with the same password as agent-password.\n" -}}
{{- end -}}
{{- include "gpuledger.ledgerRequirements" . -}}
{{- include "gpuledger.logRequirements" . -}}
{{- include "gpuledger.volumeRequirements" . -}}
{{- include "gpuledger.namespaceRequirements" . -}}
{{- if .Values.production -}}
{{- if eq .Values.nats.mode "single" -}}
{{- fail "\n\nproduction: needs three copies of the log; set nats.mode=cluster, or production=false.\n" -}}
{{- end -}}
{{- if not .Values.webhook.clientCA.existingConfigMap -}}
{{- fail "\n\nproduction: needs the API server's client certificate; set webhook.clientCA.existingConfigMap (docs/how-to/operating.md), or production=false.\n" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Errors in the names of the release, also one that an upgrade would change. */}}
{{- define "gpuledger.nameRequirements" -}}
{{- $name := include "gpuledger.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "\n\nfullnameOverride: the names of the Services would begin with %s. They have a-z, 0-9 and -, and begin with a letter. Set fullnameOverride, or give the release another name.\n" $name) -}}
{{- end -}}
{{- $ofPods := list "app.kubernetes.io/name" "app.kubernetes.io/component" "app.kubernetes.io/instance" "app.kubernetes.io/part-of" "gpuledger.io/role" -}}
{{- $ofObjects := list "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" | concat $ofPods -}}
{{- range $value, $own := dict "commonLabels" (list .Values.commonLabels $ofObjects) "podLabels" (list .Values.podLabels $ofPods) -}}
{{- range $label, $_ := first $own -}}
{{- if has $label (last $own) -}}
{{- fail (printf "\n\n%s: the chart writes the label %s itself. Leave it out, and name the release by fullnameOverride.\n" $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $release := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $isService := and (eq (get $labels "app.kubernetes.io/part-of") "gpuledger") (eq (get $labels "app.kubernetes.io/component") "service") -}}
{{- if and (eq $release $.Release.Name) $isService (ne .metadata.name $name) -}}
{{- fail (printf "\n\nfullnameOverride: the objects of this release are named %s, and would be named %s. The names cannot change, because the webhooks of the old name would stay and deny pods, and the log would be a new one. Set fullnameOverride=%s, or write a backup and restore it into a new release: docs/how-to/backup-and-restore.md.\n" .metadata.name $name .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Errors in namespaces, also in an upgrade that would delete one. */}}
{{- define "gpuledger.namespaceRequirements" -}}
{{- $probes := include "gpuledger.checkNamespace" . -}}
{{- if has $probes (include "gpuledger.exemptNamespaces" . | fromJsonArray) -}}
{{- fail (printf "\n\ncheck.namespace: the webhooks exempt the namespace %s, so its pods would not be counted and `helm test` would fail. Set check.namespace to a namespace that is neither kube-system, nor that of the release, nor in webhook.exemptNamespaces.\n" $probes) -}}
{{- end -}}
{{- $agents := include "gpuledger.agentNamespace" . -}}
{{- $makes := and .Values.agent.enabled .Values.agent.createNamespace -}}
{{- if and $makes (eq $agents .Release.Namespace) -}}
{{- fail "\n\nagent.namespace: is the namespace of the release, which exists. Leave it empty, or set agent.createNamespace=false.\n" -}}
{{- end -}}
{{- /* The binding names the namespace that the agents have now. A list of all namespaces would need a right of its own. */ -}}
{{- range dig "subjects" list (lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" (printf "%s-agent" (include "gpuledger.fullname" .))) -}}
{{- with lookup "v1" "Namespace" "" (.namespace | default "none") -}}
{{- $notes := .metadata.annotations | default dict -}}
{{- $ofRelease := and (eq (get $notes "meta.helm.sh/release-name") $.Release.Name) (eq (get $notes "meta.helm.sh/release-namespace") $.Release.Namespace) -}}
{{- $ofChart := eq (get (.metadata.labels | default dict) "app.kubernetes.io/part-of") "gpuledger" -}}
{{- $stays := or (eq (get $notes "helm.sh/resource-policy") "keep") (and $makes (eq .metadata.name $agents)) -}}
{{- if and $ofRelease $ofChart (not $stays) -}}
{{- fail (printf "\n\nagent.enabled, agent.createNamespace, agent.namespace: this release made the namespace %s, and helm would delete it with everything in it. Leave these values as they were, or keep the namespace: kubectl annotate namespace %s helm.sh/resource-policy=keep\n" .metadata.name .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Bytes of an amount of Kubernetes (10Gi) or NATS (8GB). Argument: the amount. */}}
{{- define "gpuledger.bytes" -}}
{{- $decimal := dict "" 1 "k" 1000 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- $binary := dict "K" 1024 "M" 1048576 "G" 1073741824 "T" 1099511627776 -}}
{{- $unit := regexFind "[a-zA-Z]*$" . -}}
{{- $factor := get (gt (len $unit) 1 | ternary $binary $decimal) (trunc 1 $unit) -}}
{{- mulf (regexFind "^[0-9.]+" .) $factor | int64 -}}
{{- end }}

{{/* Errors in the volumes of the log, also an upgrade that would change them. */}}
{{- define "gpuledger.volumeRequirements" -}}
{{- if ne .Values.nats.mode "external" -}}
{{- $storage := .Values.nats.storage -}}
{{- $bytes := int64 (include "gpuledger.bytes" $storage.size) -}}
{{- $log := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-nats" (include "gpuledger.fullname" .)) -}}
{{- /* Not for a log that runs: with less room than it has stored, it would accept no record. */ -}}
{{- if and (not $log) (le $bytes (int64 (include "gpuledger.bytes" $storage.maxFileStore))) -}}
{{- fail (printf "\n\nnats.storage.maxFileStore: %s is not less than the volume (nats.storage.size: %s), so the log would fill its disk. Set it to four fifths of the volume.\n" $storage.maxFileStore $storage.size) -}}
{{- end -}}
{{- range dig "spec" "volumeClaimTemplates" list $log -}}
{{- $class := .spec.storageClassName | default "" -}}
{{- $size := .spec.resources.requests.storage -}}
{{- if or (ne $class $storage.class) (ne $bytes (int64 (include "gpuledger.bytes" $size))) -}}
{{- fail (printf "\n\nnats.storage: the volumes of the log have the size %s and the class %q, and Kubernetes does not change those of a StatefulSet. Leave nats.storage.size and nats.storage.class as they were, or follow \"Larger volumes\" in docs/how-to/install.md.\n" $size $class) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The settings that the service of this release has now, in JSON; {} at an install and without a cluster. */}}
{{- define "gpuledger.presentSettings" -}}
{{- $map := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-settings" (include "gpuledger.fullname" .)) -}}
{{- dig "data" "gpuledger.toml" "" $map | fromToml | toJson -}}
{{- end }}

{{/* Errors in an upgrade to another, empty log: it compares with the settings of the release. */}}
{{- define "gpuledger.ledgerRequirements" -}}
{{- $present := include "gpuledger.presentSettings" . | fromJson -}}
{{- $cluster := get $present "cluster" | default .Values.cluster -}}
{{- if ne $cluster .Values.cluster -}}
{{- fail (printf "\n\ncluster: this release counts the cluster %s. Under the name %s the ledger would count the same objects once more. Set cluster=%s. Another name needs a new release with a new log.\n" $cluster .Values.cluster $cluster) -}}
{{- end -}}
{{- $shard := get $present "shard" | default "main" -}}
{{- $wanted := .Values.settings.shard | default "main" -}}
{{- if and $present (ne $shard $wanted) -}}
{{- fail (printf "\n\nsettings.shard: the log of this release is %s, and %s would be another log, which is empty. Set settings.shard=%s, or write a backup and restore it into a new release: docs/how-to/backup-and-restore.md.\n" $shard $wanted $shard) -}}
{{- end -}}
{{- $servers := get $present "nats" | default list -}}
{{- if and $servers (ne .Values.nats.mode "external") (not (include "gpuledger.presentServers" . | int)) -}}
{{- fail (printf "\n\nnats.mode: the log of this release is on %s, and %s would start log servers of the chart, whose log is empty. Set nats.mode=external, or write a backup and restore it into a new release: docs/how-to/backup-and-restore.md.\n" (join ", " $servers) .Values.nats.mode) -}}
{{- end -}}
{{- end }}

{{/* The number of log servers of the chart that this release has now, also while their StatefulSet is deleted. */}}
{{- define "gpuledger.presentServers" -}}
{{- $name := include "gpuledger.fullname" . -}}
{{- $servers := get (include "gpuledger.presentSettings" . | fromJson) "nats" | default list -}}
{{- $own := has (printf "nats://%s-nats-0.%s-nats:4222" $name $name) $servers | ternary (len $servers) 0 -}}
{{- dig "spec" "replicas" $own (lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-nats" $name)) -}}
{{- end }}

{{/* Errors in an upgrade that would lose the log: it compares with the objects of the cluster. */}}
{{- define "gpuledger.logRequirements" -}}
{{- $name := include "gpuledger.fullname" . -}}
{{- $running := include "gpuledger.presentServers" . | int -}}
{{- $wanted := int (include "gpuledger.natsServers" .) -}}
{{- if and $running (ne $running $wanted) -}}
{{- fail (printf "\n\nnats.mode: the log of this release has %d server(s), and %s would have %d. A log does not move: NATS deletes what another number of servers has stored. Keep the mode, or write a backup and restore it into a new release: docs/how-to/backup-and-restore.md.\n" $running .Values.nats.mode $wanted) -}}
{{- end -}}
{{- range $value, $secret := dict "nats.auth.existingSecret" (list .Values.nats.auth.existingSecret (printf "%s-nats" $name)) "certificates.existingSecret" (list .Values.certificates.existingSecret (printf "%s-tls" $name)) -}}
{{- if eq (first $secret) (last $secret) -}}
{{- $annotations := dig "metadata" "annotations" dict (lookup "v1" "Secret" $.Release.Namespace (last $secret)) | default dict -}}
{{- if eq (get $annotations "meta.helm.sh/release-name") $.Release.Name -}}
{{- fail (printf "\n\n%s: the Secret %s belongs to this release, so helm would delete it. Leave the value empty, or name a copy.\n" $value (last $secret)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Settings that the chart writes, and the values that they come from. */}}
{{- define "gpuledger.ownSettings" -}}
cluster: cluster
listen: service (the port is fixed)
store_dir: extraVolumes (the folder is fixed)
namespace: the namespace of the release
production: production
kubernetes: nothing (the service is in a cluster)
kubeconfig: serviceAccount
pod_name: nothing (it is the name of the pod)
nats: nats.servers
nats_user: nats.auth.user
nats_password: nats.auth.existingSecret
nats_monitor: nats.monitors
nats_domain: nats.domain
nats_ca: nats.caConfigMap
replicas: nats.mode
tls_cert: certificates.existingSecret
tls_key: certificates.existingSecret
tls_ca: certificates.existingSecret
tls_secret: certificates.existingSecret
register_webhook: webhook.register
register_service: webhook.register
aggregated_listen: aggregatedAPI.enabled
webhook_name: fullnameOverride
webhook_failure_policy: webhook.failurePolicy
exempt_namespaces: webhook.exemptNamespaces
client_ca: webhook.clientCA.existingConfigMap
client_subjects: webhook.clientCA.subjects
preemption: scheduler.preemption
{{- end }}
