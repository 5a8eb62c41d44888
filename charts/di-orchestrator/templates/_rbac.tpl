{{/* Roles and their bindings to the ServiceAccount of a program. */}}
{{- define "di-orchestrator.rbac" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
rules:
  {{- toYaml .rbac.clusterRole | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "di-orchestrator.accountName" . }}
    namespace: {{ .root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
rules:
  {{- toYaml .rbac.role | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "di-orchestrator.accountName" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The rules of a program without those of Secrets. */}}
{{- define "di-orchestrator.withoutSecrets" -}}
{{- $rules := list -}}
{{- range $rule := .role }}
{{- with without $rule.resources "secrets" }}
{{- $rules = append $rules (set (deepCopy $rule) "resources" .) }}
{{- end }}
{{- end }}
{{- dict "clusterRole" .clusterRole "role" $rules | toYaml }}
{{- end }}
