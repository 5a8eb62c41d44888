{{/* The flags of di-server that values lead to; a default of the program's is not said again. */}}
{{- define "di-orchestrator.serverArgs" -}}
{{- $server := .Values.server -}}
{{- include "di-orchestrator.jobArgs" . }}
{{- if ne $server.identity "enforce" }}
- --identity={{ $server.identity }}
{{- end }}
{{- with ($server.limits).replicasPerRequest }}
- --max-replicas-per-request={{ int64 . }}
{{- end }}
{{- with ($server.limits).replicasPerJob }}
- --max-replicas-per-job={{ int64 . }}
{{- end }}
{{- with ($server.limits).writesPerSecond }}
- --writes-per-second={{ . }}
{{- end }}
{{- with ($server.limits).writeBurst }}
- --write-burst={{ int64 . }}
{{- end }}
{{- with ($server.limits).writeBytesPerMinute }}
- --write-bytes-per-minute={{ int64 . }}
{{- end }}
{{- with ($server.limits).profilingBytes }}
- --max-profiling-bytes={{ int64 . }}
{{- end }}
{{- end }}
