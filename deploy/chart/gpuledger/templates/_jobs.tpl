{{/*
The beginning of the pod of a Job that runs a command of gpuledger, without the priority class: it would evict tenants'
pods, and may need a quota that a hook before an install does not find. Argument: (list root account).
*/}}
{{- define "gpuledger.jobPod" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
serviceAccountName: {{ . }}
{{- else -}}
automountServiceAccountToken: false
{{- end }}
enableServiceLinks: false
{{- include "gpuledger.pullSecrets" $root }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with $root.Values.affinity.nodeAffinity }}
affinity:
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
{{- end }}
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- end }}

{{/* Image and security context of the container of such a Job. Argument: root. */}}
{{- define "gpuledger.jobContainer" -}}
image: {{ include "gpuledger.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- end }}

{{/* A ClusterRole, a Role or their bindings to an account. Argument: dict root name kind namespace(optional) account annotations(optional). */}}
{{- define "gpuledger.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "gpuledger.labels" (list .root) | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The template of a pod that mounts a claim and ends. Argument: (list root claim). */}}
{{- define "gpuledger.firstConsumer" -}}
{{- $root := index . 0 -}}
metadata:
  labels:
    {{- include "gpuledger.podLabels" (list $root "backup") | nindent 4 }}
spec:
  restartPolicy: Never
  {{- include "gpuledger.jobPod" (list $root "") | nindent 2 }}
  containers:
  - name: mount
    args: [--version]
    {{- include "gpuledger.jobContainer" $root | nindent 4 }}
    resources:
      requests: {cpu: 10m, memory: 64Mi}
      limits: {memory: 256Mi}
    volumeMounts:
    - {name: backups, mountPath: /var/backups/gpuledger}
  volumes:
  - name: backups
    persistentVolumeClaim: {claimName: {{ index . 1 }}}
{{- end }}

{{/* The spec of a quota that admits a priority class and limits nothing. Argument: the class. */}}
{{- define "gpuledger.priorityQuota" -}}
hard:
  pods: "100000"
scopeSelector:
  matchExpressions:
  - scopeName: PriorityClass
    operator: In
    values: [{{ . }}]
{{- end }}

{{/*
The further mounts of the service that have files or folders with these paths, as {"mounts": [...], "volumes": [...]}.
Another volume may be usable with the service's account or on its node only. Argument: (list root paths); texts that are
no paths are ignored.
*/}}
{{- define "gpuledger.namedFiles" -}}
{{- $root := index . 0 -}}
{{- $mounts := list -}}
{{- $names := list -}}
{{- range $mount := $root.Values.extraVolumeMounts -}}
{{- $here := printf "%s/" (trimSuffix "/" $mount.mountPath) -}}
{{- range index $ 1 -}}
{{- $path := printf "%s/" (toString . | trimSuffix "/") -}}
{{- if and (hasPrefix "/" $path) (ne $path "/") (not (has $mount $mounts)) (or (hasPrefix $here $path) (hasPrefix $path $here)) -}}
{{- $mounts = append $mounts $mount -}}
{{- $names = append $names $mount.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $volumes := list -}}
{{- range $root.Values.extraVolumes -}}
{{- if has .name $names -}}{{- $volumes = append $volumes . -}}{{- end -}}
{{- end -}}
{{- dict "mounts" $mounts "volumes" $volumes | toJson -}}
{{- end }}

{{/* The paths among settings and variables, as JSON; other texts are among them. Argument: (list settings variables). */}}
{{- define "gpuledger.paths" -}}
{{- $paths := list -}}
{{- range values (index . 0) -}}
{{- $paths = kindIs "slice" . | ternary . (list .) | concat $paths -}}
{{- end -}}
{{- range index . 1 -}}
{{- $paths = append $paths (.value | default "") -}}
{{- end -}}
{{- toJson $paths -}}
{{- end }}
