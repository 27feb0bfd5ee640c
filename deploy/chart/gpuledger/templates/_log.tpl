{{/* The number of log servers that the chart runs; 0 with external ones. */}}
{{- define "gpuledger.natsServers" -}}
{{- get (dict "single" 1 "cluster" 3 "external" 0) .Values.nats.mode -}}
{{- end }}

{{/* Addresses of the log. Argument: (list root scheme port suffix); the suffix follows the name of the Service. */}}
{{- define "gpuledger.natsHosts" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-nats" (include "gpuledger.fullname" $root) -}}
{{- $hosts := list -}}
{{- range $number := until (int (include "gpuledger.natsServers" $root)) -}}
{{- $hosts = append $hosts (printf "%s://%s-%d.%s%s:%v" (index $ 1) $name $number $name (index $ 3) (index $ 2)) -}}
{{- end -}}
{{- toJson $hosts -}}
{{- end }}

{{/* A list of TOML, one item a line. Argument: a list. */}}
{{- define "gpuledger.tomlList" -}}
[
{{- range . }}
  {{ toJson . }},
{{- end }}
]
{{- end }}

{{/* Whether a file that the settings name has the login of external servers: a text, empty for no. Argument: root. */}}
{{- define "gpuledger.loginByFile" -}}
{{- if and (eq .Values.nats.mode "external") (or .Values.settings.nats_creds .Values.settings.nats_login_file) -}}yes{{- end -}}
{{- end }}

{{/* The environment of a program that writes or reads the log. Argument: (list root variables). */}}
{{- define "gpuledger.environment" -}}
{{- $root := index . 0 -}}
{{- if not (include "gpuledger.loginByFile" $root) }}
- name: GPULEDGER_NATS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "gpuledger.natsSecret" $root }}, key: password}}
{{- end }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The settings of the log, in TOML. Argument: root. */}}
{{- define "gpuledger.logSettings" -}}
{{- if eq .Values.nats.mode "external" -}}
nats = {{ include "gpuledger.tomlList" .Values.nats.servers }}
{{- if .Values.nats.monitors }}
nats_monitor = {{ include "gpuledger.tomlList" .Values.nats.monitors }}
{{- end }}
{{- with .Values.nats.domain }}
nats_domain = {{ toJson . }}
{{- end }}
{{- if .Values.nats.caConfigMap }}
nats_ca = "/etc/gpuledger/nats-ca/ca.crt"
{{- end }}
{{- if not (include "gpuledger.loginByFile" .) }}
nats_user = {{ toJson .Values.nats.auth.user }}
{{- end }}
replicas = {{ .Values.nats.replicas }}
{{- else -}}
nats = {{ include "gpuledger.natsHosts" (list . "nats" 4222 "") | fromJsonArray | include "gpuledger.tomlList" }}
nats_monitor = {{ include "gpuledger.natsHosts" (list . "http" 8222 "") | fromJsonArray | include "gpuledger.tomlList" }}
nats_user = {{ toJson .Values.nats.auth.user }}
replicas = {{ include "gpuledger.natsServers" . }}
{{- end }}
{{- end }}

{{/* Further settings in TOML, sorted by name. JSON of texts, numbers, truths and lists of them is TOML. Argument: a map. */}}
{{- define "gpuledger.furtherSettings" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end }}

{{/* The settings of the extender, in YAML: its own come before those of the service. Argument: root. */}}
{{- define "gpuledger.extenderSettings" -}}
{{- merge (dict) .Values.scheduler.settings .Values.settings | toYaml -}}
{{- end }}

{{/* The resources that the scheduler leaves to the extender: those of the vendors in the settings, or the given ones. */}}
{{- define "gpuledger.managedResources" -}}
{{- $managed := .Values.scheduler.managedResources -}}
{{- if not $managed -}}
{{- $wanted := (include "gpuledger.extenderSettings" . | fromYaml).vendors | default (list "nvidia") -}}
{{- range $vendor, $resources := .Files.Get "files/managed-resources.yaml" | fromYaml -}}
{{- range $wanted -}}
{{- if hasPrefix (printf "%s-" .) (printf "%s-" $vendor) -}}
{{- range $resources -}}
{{- $managed = append $managed (dict "name" . "ignoredByScheduler" true) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $managed }}
- name: {{ .name }}
  ignoredByScheduler: {{ .ignoredByScheduler }}
{{- end }}
{{- end }}
