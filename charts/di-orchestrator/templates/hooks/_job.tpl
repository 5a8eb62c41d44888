{{/* A Job that runs one command of the program, and the rights that it has for the time: everywhere, or by a Role only in the namespace. */}}
{{- define "di-orchestrator.hook" -}}
{{- $root := .root -}}
{{- $role := default "ClusterRole" .role -}}
{{- $name := printf "di-orchestrator-%s" .name -}}
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
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}
metadata:
  name: {{ $name }}
  {{- if eq $role "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}Binding
metadata:
  name: {{ $name }}
  {{- if eq $role "Role" }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $role }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
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
        {{- include "di-orchestrator.podSecurityContext" $root | nindent 8 }}
      {{- with include "di-orchestrator.placement" $root.Values.operator }}
      {{- . | nindent 6 }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ include "di-orchestrator.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - {{ .name }}
            - --timeout={{ $root.Values.hooks.timeout }}
            {{- range .args }}
            - {{ . | quote }}
            {{- end }}
          env:
            {{- include "di-orchestrator.podNamespace" $root | nindent 12 }}
          resources:
            {{- toYaml $root.Values.hooks.resources | nindent 12 }}
          securityContext:
            {{- include "di-orchestrator.securityContext" $root | nindent 12 }}
{{- end }}
