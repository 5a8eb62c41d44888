{{/* The operator's flags that values lead to; a default of the program's is not said again. */}}
{{- define "di-orchestrator.operatorArgs" -}}
{{- $operator := .Values.operator -}}
- --leader-elect
{{- include "di-orchestrator.jobArgs" . }}
{{- include "di-orchestrator.installationArgs" . }}
{{- if ne (int $operator.shards) 1 }}
- --shards={{ int $operator.shards }}
{{- end }}
{{- with $operator.workers }}
- --workers={{ . }}
{{- end }}
{{- if ne $operator.probeInterval "30s" }}
- --webhook-probe-interval={{ $operator.probeInterval }}
{{- end }}
{{- with ($operator.migration).qps }}
- --migration-qps={{ . }}
{{- end }}
{{- if or (ne .Release.Namespace "di-system") (ne .Values.serviceDomain "svc.cluster.local") }}
- --server-url-coordinator=http://di-server.{{ .Release.Namespace }}:8080
- --server-url-replica=di-server.{{ .Release.Namespace }}:8080
- --server-url-worker=http://di-server.{{ .Release.Namespace }}.{{ .Values.serviceDomain }}:8081
{{- end }}
{{- with .Values.metrics.namespaces }}
- --metrics-namespaces={{ int . }}
{{- end }}
{{- with .Values.forceDeleteAfter }}
- --force-delete-after={{ . }}
{{- end }}
{{- if ne .Values.autoscaleMaxMemory "64Gi" }}
- --autoscale-max-memory={{ .Values.autoscaleMaxMemory }}
{{- end }}
{{- if ne .Values.podResizeTimeout "1m0s" }}
- --pod-resize-timeout={{ .Values.podResizeTimeout }}
{{- end }}
{{- if not .Values.allocator.enabled }}
- --allocator=false
{{- end }}
{{- if ne .Values.allocator.cycle "1m0s" }}
- --allocator-cycle={{ .Values.allocator.cycle }}
{{- end }}
{{- $policies := concat (list "fit" "goodput") (.Values.allocator.linkedPolicies | default list) }}
{{- if not (has .Values.allocator.policy $policies) }}
{{- fail (printf "allocator.policy: there is no policy %s: must be one of %s; allocator.linkedPolicies names those that your image links" .Values.allocator.policy (join ", " $policies)) }}
{{- end }}
{{- if ne .Values.allocator.policy "fit" }}
- --allocator-policy={{ .Values.allocator.policy }}
{{- end }}
{{- if ne (toString .Values.allocator.fairness) "0.02" }}
- --allocator-fairness={{ .Values.allocator.fairness }}
{{- end }}
{{- if not .Values.autoscaler.enabled }}
- --autoscaler=false
{{- end }}
{{- with .Values.autoscaler.optimizer.url }}
- --optimizer-url={{ . }}
{{- end }}
{{- if ne .Values.autoscaler.optimizer.timeout "5s" }}
- --optimizer-timeout={{ .Values.autoscaler.optimizer.timeout }}
{{- end }}
{{- with .Values.autoscaler.optimizer.tokenFile }}
- --optimizer-token-file={{ . }}
{{- end }}
{{- with .Values.autoscaler.optimizer.caFile }}
- --optimizer-ca-file={{ . }}
{{- end }}
{{- with .Values.autoscaler.prometheusURL }}
- --prometheus-url={{ . }}
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
{{- end }}
