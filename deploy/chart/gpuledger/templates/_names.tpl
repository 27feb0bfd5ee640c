{{/* The beginning of all names, cluster-scoped ones too. Names of objects end with up to 24 more characters. */}}
{{- define "gpuledger.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 38 | trimSuffix "-" -}}
{{- else if contains "gpuledger" .Release.Name -}}
{{- .Release.Name | trunc 38 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-gpuledger" (.Release.Name | trunc 28 | trimSuffix "-") -}}
{{- end -}}
{{- end }}

{{/* The namespace of the agents. */}}
{{- define "gpuledger.agentNamespace" -}}
{{- .Values.agent.namespace | default (printf "%s-nodes" (include "gpuledger.fullname" .)) -}}
{{- end }}

{{/* The namespaces that the webhooks exempt, as JSON. */}}
{{- define "gpuledger.exemptNamespaces" -}}
{{- .Values.webhook.exemptNamespaces | default list | concat (list "kube-system" .Release.Namespace) | uniq | toJson -}}
{{- end }}

{{/* The namespace of the dry runs of `helm test`, empty for no test: the default value, where it is exempt. */}}
{{- define "gpuledger.checkNamespace" -}}
{{- $probes := .Values.check.namespace | default "" -}}
{{- $exempt := include "gpuledger.exemptNamespaces" . | fromJsonArray -}}
{{- if not (and (eq $probes "default") (has $probes $exempt)) -}}{{- $probes -}}{{- end -}}
{{- end }}

{{/* The schedulerName of the pods that the scheduler of this release places. */}}
{{- define "gpuledger.schedulerName" -}}
{{- .Values.scheduler.name | default (printf "%s-scheduler" (include "gpuledger.fullname" .)) -}}
{{- end }}

{{/* The Secrets: the passwords of the log, that of the agents, and the certificates. */}}
{{- define "gpuledger.natsSecret" -}}
{{- .Values.nats.auth.existingSecret | default (printf "%s-nats" (include "gpuledger.fullname" .)) -}}
{{- end }}
{{- define "gpuledger.agentSecret" -}}
{{- .Values.agent.auth.existingSecret | default (printf "%s-agent" (include "gpuledger.fullname" .)) -}}
{{- end }}
{{/* That of cert-manager has a name of its own: in an upgrade from self-made certificates, helm deletes the other. */}}
{{- define "gpuledger.tlsSecret" -}}
{{- $suffix := ternary "cert" "tls" .Values.certManager.enabled -}}
{{- .Values.certificates.existingSecret | default (printf "%s-%s" (include "gpuledger.fullname" .) $suffix) -}}
{{- end }}

{{/* Whether the service makes its certificates itself: a text, empty for no. */}}
{{- define "gpuledger.selfMade" -}}
{{- if not (or .Values.certManager.enabled .Values.certificates.existingSecret) -}}yes{{- end -}}
{{- end }}

{{/* Labels that select the pods of a part; immutable. Argument: (list root component). */}}
{{- define "gpuledger.selector" -}}
app.kubernetes.io/name: {{ include "gpuledger.fullname" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/*
Whether the Service of the webhooks selects replicas by their role: a text, empty for no. The pods of a release from
before the role have no such label, so with it the Service would have no endpoint until a new replica is ready. Then it
keeps its selector until all pods are of a template with the label.
*/}}
{{- define "gpuledger.selectsRole" -}}
{{- $name := include "gpuledger.fullname" . -}}
{{- $service := lookup "v1" "Service" .Release.Namespace $name -}}
{{- $running := lookup "apps/v1" "Deployment" .Release.Namespace $name -}}
{{- $selected := hasKey (dig "spec" "selector" dict $service) "gpuledger.io/role" -}}
{{- $labelled := hasKey (dig "spec" "template" "metadata" "labels" dict $running) "gpuledger.io/role" -}}
{{- $status := dig "status" dict $running -}}
{{- $seen := eq (dig "metadata" "generation" 0 $running | int) (dig "observedGeneration" 0 $status | int) -}}
{{- $replaced := and $seen (eq (dig "replicas" 0 $status | int) (dig "updatedReplicas" 0 $status | int)) -}}
{{- if or (not $service) (not $running) $selected (and $labelled $replaced) -}}yes{{- end -}}
{{- end }}

{{/* Labels of objects. Argument: (list root) or (list root component). */}}
{{- define "gpuledger.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "gpuledger.fullname" $root }}
{{- if gt (len .) 1 }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: gpuledger
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of the pods of a part. Argument: (list root component) or (list root component further). */}}
{{- define "gpuledger.podLabels" -}}
{{- $root := index . 0 -}}
{{- $further := dict -}}
{{- if gt (len .) 2 -}}{{- $further = index . 2 -}}{{- end -}}
{{ include "gpuledger.selector" . }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/part-of: gpuledger
{{- with merge (dict) $further $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of an image. Argument: (list root image). */}}
{{- define "gpuledger.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $root.Values.global.imageRegistry | default $image.registry -}}
{{- $name := $image.repository -}}
{{- if $registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" $registry) $name -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (toString ($image.tag | default $root.Chart.AppVersion)) -}}
{{- end -}}
{{- end }}

{{/* The lines imagePullSecrets of a pod; none without Secrets. */}}
{{- define "gpuledger.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.image.pullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Whether this release installs a definition: a text, empty for no. A definition has one name in a cluster, so that of another
release stays with that release. Argument: (list root name).
*/}}
{{- define "gpuledger.installsDefinition" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.crds.install -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1) -}}
{{- $notes := dig "metadata" "annotations" dict ($found | default dict) -}}
{{- $release := get $notes "meta.helm.sh/release-name" | default $root.Release.Name -}}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" | default $root.Release.Namespace -}}
{{- if and (eq $release $root.Release.Name) (eq $namespace $root.Release.Namespace) -}}yes{{- end -}}
{{- end -}}
{{- end }}
