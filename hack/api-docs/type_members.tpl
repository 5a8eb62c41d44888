{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
as of every object in Kubernetes
{{- else -}}
{{ .Doc | replace "\n" " " | trimPrefix (printf "%s is " .Name) | trimPrefix (printf "%s are " .Name) | markdownRenderFieldDoc }}
{{- end -}}
{{- end -}}
