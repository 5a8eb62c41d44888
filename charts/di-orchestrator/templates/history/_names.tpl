{{/* The labels that select the pods of the history. */}}
{{- define "di-orchestrator.history.selector" -}}
app.kubernetes.io/name: di-orchestrator
app.kubernetes.io/component: history
{{- end }}
