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
{{ include "di-orchestrator.role" (dict "root" .root "component" .component "name" .name "namespace" .root.Release.Namespace "rules" .rbac.role) }}
{{- end }}

{{/* A Role and its binding. */}}
{{- define "di-orchestrator.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
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

{{/* The resources that are in no namespace. */}}
{{- define "di-orchestrator.clusterScoped" -}}
- nodes
- customresourcedefinitions
- customresourcedefinitions/status
- deviceclasses
- resourceslices
- tokenreviews
- subjectaccessreviews
{{- end }}

{{/*
Rules of which only the resources that are in namespaces are kept, or only the others. Created Events may be about objects of no
namespace.
*/}}
{{- define "di-orchestrator.part" -}}
{{- $cluster := include "di-orchestrator.clusterScoped" . | fromYamlArray -}}
{{- $part := list -}}
{{- range $rule := .rules }}
{{- $resources := list -}}
{{- range $resource := $rule.resources }}
{{- $isCluster := or (has $resource $cluster) (and (eq $resource "events") (has "create" $rule.verbs)) -}}
{{- if eq $isCluster $.cluster }}{{ $resources = append $resources $resource }}{{ end -}}
{{- end }}
{{- with $resources }}
{{- $part = append $part (set (deepCopy $rule) "resources" .) }}
{{- end }}
{{- end }}
{{- toYaml $part }}
{{- end }}

{{/*
The roles of a program that runs the jobs of all namespaces, or of watchNamespaces. Then its rights to what is in namespaces are
those of a Role in each; "own" are rights to it in the installation's namespace, and "always" in all namespaces.
*/}}
{{- define "di-orchestrator.jobsRBAC" -}}
{{- $watched := include "di-orchestrator.watchNamespaces" .root | fromYamlArray -}}
{{- if not $watched -}}
{{- include "di-orchestrator.rbac" . }}
{{- else -}}
{{- $cluster := include "di-orchestrator.part" (dict "rules" .rbac.clusterRole "cluster" true) | fromYamlArray -}}
{{- $namespaced := include "di-orchestrator.part" (dict "rules" .rbac.clusterRole "cluster" false) | fromYamlArray -}}
{{- $rbac := dict "clusterRole" (concat $cluster (.always | default list)) "role" (concat .rbac.role (.own | default $namespaced)) -}}
{{- include "di-orchestrator.rbac" (set (deepCopy (omit . "root")) "rbac" $rbac | merge (dict "root" .root)) }}
{{- $program := . }}
{{- range $namespace := without $watched .root.Release.Namespace }}
---
{{ include "di-orchestrator.role" (dict "root" $program.root "component" $program.component "name" $program.name "namespace" $namespace "rules" $namespaced) }}
{{- end }}
{{- end }}
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
