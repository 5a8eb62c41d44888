{{/* The webhooks' flags that values lead to; a default of the program's is not said again. */}}
{{- define "di-orchestrator.webhookArgs" -}}
{{- $webhook := .Values.webhook -}}
{{- include "di-orchestrator.installationArgs" . }}
{{- include "di-orchestrator.watchArgs" . }}
{{- if ne ($webhook.port | int) 9443 }}
- --webhook-address=:{{ $webhook.port }}
{{- end }}
{{- with $webhook.url }}
- --webhook-url={{ . }}
{{- end }}
{{- if .Values.certManager.enabled }}
- --webhook-secret=di-orchestrator-webhook-tls
{{- end }}
{{- end }}
