{{/* The labels of every object. */}}
{{- define "di-orchestrator.labels" -}}
app.kubernetes.io/name: di-orchestrator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels that select the operator's pods, which never change. */}}
{{- define "di-orchestrator.operator.selector" -}}
app.kubernetes.io/name: di-orchestrator
app.kubernetes.io/component: operator
{{- end }}

{{/* The same of the webhooks. */}}
{{- define "di-orchestrator.webhook.selector" -}}
app.kubernetes.io/name: di-orchestrator
app.kubernetes.io/component: webhook
{{- end }}

{{/* The same of di-server. The Service of earlier releases selects by the last. */}}
{{- define "di-orchestrator.server.selector" -}}
app.kubernetes.io/name: di-orchestrator
app.kubernetes.io/component: server
control-plane: di-server
{{- end }}

{{/* The same of the web page. */}}
{{- define "di-orchestrator.web.selector" -}}
app.kubernetes.io/name: di-orchestrator
app.kubernetes.io/component: web
{{- end }}

{{/* The image of the programs. */}}
{{- define "di-orchestrator.image" -}}
{{ include "di-orchestrator.imageOf" (dict "root" . "image" .Values.image) }}
{{- end }}

{{/* An image. As in Docker, the part before the first slash is a registry if it has a dot or a port. */}}
{{- define "di-orchestrator.imageOf" -}}
{{- $image := .image -}}
{{- $repository := $image.repository -}}
{{- with (.root.Values.global).imageRegistry | default .root.Values.image.registry -}}
{{- $repository = regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "" | printf "%s/%s" . -}}
{{- end -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository (default .root.Chart.AppVersion $image.tag) }}
{{- end -}}
{{- end }}

{{/* Nine tenths of a memory limit, for GOMEMLIMIT; nothing without a limit in Mi or Gi. */}}
{{- define "di-orchestrator.memory" -}}
{{- $limit := ((.).limits).memory | toString -}}
{{- if hasSuffix "Mi" $limit -}}
{{ div (mul 9 (trimSuffix "Mi" $limit | int)) 10 }}MiB
{{- else if hasSuffix "Gi" $limit -}}
{{ div (mul 9 1024 (trimSuffix "Gi" $limit | int)) 10 }}MiB
{{- end -}}
{{- end }}

{{/* The name of a program's ServiceAccount. */}}
{{- define "di-orchestrator.accountName" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{ $account.name | default (printf "di-orchestrator-%s" .component) }}
{{- end }}

{{/* PriorityClass of jobs of a priority: the value's name, else the one that the chart makes. */}}
{{- define "di-orchestrator.priorityClass" -}}
{{- $class := index .root.Values.priorityClasses .priority -}}
{{- if $class.name }}{{ $class.name }}{{ else if .root.Values.priorityClasses.create }}dijob-{{ .priority }}{{ end -}}
{{- end }}

{{/* What the pods of the programs and of the hooks have alike. */}}
{{- define "di-orchestrator.podNamespace" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{- define "di-orchestrator.probes" -}}
# The operator and di-server wait for the webhooks before they serve probes.
startupProbe:
  httpGet:
    path: /healthz
    port: probes
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet:
    path: /readyz
    port: probes
  periodSeconds: 2
  failureThreshold: 1
livenessProbe:
  httpGet:
    path: /healthz
    port: probes
  periodSeconds: 20
  failureThreshold: 3
{{- end }}

{{- define "di-orchestrator.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
