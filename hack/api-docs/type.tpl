{{- define "type" -}}
{{- if markdownShouldRenderType . }}
## {{ .Name }}

{{ .Doc }}
{{ if .IsAlias }}
A {{ markdownRenderTypeLink .UnderlyingType }}{{ with .Validation }}: {{ join "; " . }}{{ end }}.
{{ end }}
{{- with .SortedReferences }}
In {{ range $i, $type := . }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $type }}{{ end }}.
{{ end }}
{{- if .Members }}
| field | type | description | rules |
| --- | --- | --- | --- |
{{ if .GVK -}}
| `apiVersion` | string | `{{ .GVK.Group }}/{{ .GVK.Version }}` | |
| `kind` | string | `{{ .GVK.Kind }}` | |
{{ end -}}
{{ range .Members -}}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "type_members" . }} | {{ range $i, $rule := .Validation }}{{ if $i }}<br />{{ end }}{{ $rule | replace ": {}" "" | markdownRenderFieldDoc }}{{ end }} |
{{ end -}}
{{ end -}}
{{ if .EnumValues }}
| value | meaning |
| --- | --- |
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ .Doc | replace "\n" " " | markdownRenderFieldDoc }} |
{{ end -}}
{{ end -}}
{{- end -}}
{{- end -}}
