{{/* The operator's flags that values lead to; a default of the program's is not said again. */}}
{{- define "di-orchestrator.operatorArgs" -}}
{{- $operator := .Values.operator -}}
{{- with $operator.workers }}
- --workers={{ . }}
{{- end }}
{{- if ne ($operator.webhook.port | int) 9443 }}
- --webhook-address=:{{ $operator.webhook.port }}
{{- end }}
{{- with $operator.webhook.url }}
- --webhook-url={{ . }}
{{- end }}
{{- if ne $operator.webhook.probeInterval "30s" }}
- --webhook-probe-interval={{ $operator.webhook.probeInterval }}
{{- end }}
{{- with $operator.migration.qps }}
- --migration-qps={{ . }}
{{- end }}
{{- if .Values.certManager.enabled }}
- --webhook-certificates=secret
- --webhook-secret=di-orchestrator-webhook-tls
{{- end }}
{{- if ne .Values.serviceDomain "svc.cluster.local" }}
- --service-domain={{ .Values.serviceDomain }}
{{- end }}
{{- if or (ne .Release.Namespace "di-system") (ne .Values.serviceDomain "svc.cluster.local") }}
- --server-url-coordinator=http://di-server.{{ .Release.Namespace }}:8080
- --server-url-replica=di-server.{{ .Release.Namespace }}:8080
- --server-url-worker=http://di-server.{{ .Release.Namespace }}.{{ .Values.serviceDomain }}:8081
{{- end }}
{{- if ne (int .Values.maxPodsPerJob) 5000 }}
- --max-pods-per-job={{ int .Values.maxPodsPerJob }}
{{- end }}
{{- with .Values.forceDeleteAfter }}
- --force-delete-after={{ . }}
{{- end }}
{{- if not .Values.takeover.enabled }}
- --takeover=false
{{- end }}
{{- if not .Values.allocator.enabled }}
- --allocator=false
{{- end }}
{{- if ne .Values.allocator.cycle "1m0s" }}
- --allocator-cycle={{ .Values.allocator.cycle }}
{{- end }}
{{- if ne .Values.queueing "auto" }}
- --queueing={{ .Values.queueing }}
{{- end }}
{{- if ne .Values.gangs.scheduler "auto" }}
- --gang-scheduler={{ .Values.gangs.scheduler }}
{{- end }}
{{- with .Values.gangs.schedulerName }}
- --gang-scheduler-name={{ . }}
{{- end }}
{{- with include "di-orchestrator.priorityClass" (dict "root" . "priority" "normal") }}
- --priority-class-normal={{ . }}
{{- end }}
{{- with include "di-orchestrator.priorityClass" (dict "root" . "priority" "high") }}
- --priority-class-high={{ . }}
{{- end }}
{{- if .Values.aggregatorConfig.template }}
- --default-aggregator-config=di-orchestrator-aggregator-config
{{- end }}
{{- if .Values.metrics.secure }}
- --metrics-secure
{{- end }}
{{- range $operator.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
