{{/* The flags of di-server that values lead to; a default of the program's is not said again. */}}
{{- define "di-orchestrator.serverArgs" -}}
{{- $server := .Values.server -}}
{{- if ne $server.identity "enforce" }}
- --identity={{ $server.identity }}
{{- end }}
{{- with $server.limits.replicasPerRequest }}
- --max-replicas-per-request={{ . }}
{{- end }}
{{- with $server.limits.replicasPerJob }}
- --max-replicas-per-job={{ . }}
{{- end }}
{{- with $server.limits.writesPerSecond }}
- --writes-per-second={{ . }}
{{- end }}
{{- with $server.limits.writeBurst }}
- --write-burst={{ . }}
{{- end }}
{{- if .Values.metrics.secure }}
- --metrics-secure
{{- end }}
{{- range $server.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
