{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
as of every object in Kubernetes
{{- else -}}
{{ .Doc | replace "\n" " " | markdownRenderFieldDoc }}
{{- end -}}
{{- end -}}
