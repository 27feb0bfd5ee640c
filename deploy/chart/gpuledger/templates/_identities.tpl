{{/*
The accounts and the scheduler of this release, for settings of service and extender: both know by themselves only those
of a release named gpuledger. The user's own follow. Argument: dict root settings hint(optional: with a comment where
there are none).
*/}}
{{- define "gpuledger.identities" -}}
{{- $root := .root -}}
{{- $name := include "gpuledger.fullname" $root -}}
{{- $identities := list -}}
{{- $schedulers := list -}}
{{- if ne $name "gpuledger" -}}
{{- range list "" "-scheduler" -}}
{{- $identities = append $identities (printf "system:serviceaccount:%s:%s%s" $root.Release.Namespace $name .) -}}
{{- end -}}
{{- end -}}
{{- $scheduler := include "gpuledger.schedulerName" $root -}}
{{- if and $root.Values.scheduler.enabled (ne $scheduler "gpuledger-scheduler") -}}
{{- $schedulers = append $schedulers $scheduler -}}
{{- end -}}
{{- $identities = concat $identities (.settings.trusted_identities | default list) -}}
{{- $schedulers = concat $schedulers (.settings.card_schedulers | default list) -}}
{{- if $identities }}
# Accounts that may write annotations of allocations: those of this release, and others that you name.
trusted_identities = {{ include "gpuledger.tomlList" $identities }}
{{- else if .hint }}
# For a HAMi with another release name than hami, or outside kube-system: write the lines that
# `gpuledger import hami --dry-run` prints here, before the webhooks are registered.
# trusted_identities = []
{{- end }}
{{- if $schedulers }}
card_schedulers = {{ toJson $schedulers }}
{{- end }}
{{- end }}
