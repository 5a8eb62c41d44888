{{/* A container that runs one command of the program. */}}
{{- define "di-orchestrator.hookContainer" -}}
- name: {{ .name }}
  image: {{ include "di-orchestrator.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args:
    - {{ .name }}
    - --timeout={{ .root.Values.hooks.timeout }}
    {{- range .args }}
    - {{ . | quote }}
    {{- end }}
  env:
    {{- include "di-orchestrator.podNamespace" .root | nindent 4 }}
  resources:
    {{- .root.Values.hooks.resources | default dict | toYaml | nindent 4 }}
  securityContext:
    {{- .root.Values.securityContext | default dict | toYaml | nindent 4 }}
{{- end }}
{{/*
A Job that runs one command of the program, and the rights that it has for the time: everywhere, or by a Role only in the namespace;
more of those are "local".
A gate is a command that runs before it, and that is not tried again where it ends with 1.
*/}}
{{- define "di-orchestrator.hook" -}}
{{- $root := .root -}}
{{- $role := default "ClusterRole" .role -}}
{{- $name := printf "di-orchestrator-%s" .name -}}
{{- $on := .on -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- $roles := list (dict "kind" $role "rules" .rules) }}
{{- with .local }}
{{- $roles = append $roles (dict "kind" "Role" "rules" .) }}
{{- end }}
{{- range $roles }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ $name }}
  {{- if eq .kind "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $on }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ $name }}
  {{- if eq .kind "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $on }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-weight: "0"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 3
  {{- with .gate }}
  podFailurePolicy:
    rules:
      - action: FailJob
        onExitCodes:
          containerName: {{ . }}
          operator: In
          values: [1]
  {{- end }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: di-orchestrator
        app.kubernetes.io/component: {{ .name }}
    spec:
      serviceAccountName: {{ $name }}
      restartPolicy: Never
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- $root.Values.podSecurityContext | default dict | toYaml | nindent 8 }}
      {{- with include "di-orchestrator.placement" $root.Values.operator }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with .gate }}
      initContainers:
        {{- include "di-orchestrator.hookContainer" (dict "root" $root "name" . "args" list) | nindent 8 }}
      {{- end }}
      containers:
        {{- include "di-orchestrator.hookContainer" . | nindent 8 }}
{{- end }}
{{/* The rights of a hook by which nodes know di-server of an earlier release under every port name of its Service. */}}
{{- define "di-orchestrator.bridgeRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [services]
  resourceNames: [di-server]
  verbs: [get]
# OpenShift has a right of its own for addresses of pods.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices, endpointslices/restricted]
  verbs: [create, update]
{{- end }}
