{{/*
A Deployment of one of the programs. It has its command's name as its component; "values" are those of the program, and
"args", "ports" and "env" what only it has.
*/}}
{{- define "di-orchestrator.deployment" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $selector := include (printf "di-orchestrator.%s.selector" .component) $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: di-orchestrator-{{ .component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  replicas: {{ $values.replicas }}
  strategy:
    rollingUpdate:
      {{- if $values.hostNetwork }}
      # Where each node has one, there is no node whose port is free for another.
      maxUnavailable: 1
      maxSurge: 0
      {{- else }}
      maxUnavailable: 0
      maxSurge: 1
      {{- end }}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: di-orchestrator-{{ .component }}
      terminationGracePeriodSeconds: 60
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      securityContext:
        {{- include "di-orchestrator.podSecurityContext" $root | nindent 8 }}
      {{- with include "di-orchestrator.placement" $values }}
      {{- . | nindent 6 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
          # Only pods of one revision are to be apart: in a rollout, those that go
          # would draw those that come together on one node.
          matchLabelKeys: [pod-template-hash]
      containers:
        - name: {{ .component }}
          image: {{ include "di-orchestrator.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - {{ .component }}
            {{- include "di-orchestrator.processArgs" $root | nindent 12 }}
            {{- .args | nindent 12 }}
            {{- if $root.Values.metrics.secure }}
            - --metrics-secure
            {{- end }}
            {{- range $values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            {{- include "di-orchestrator.podNamespace" $root | nindent 12 }}
            {{- include "di-orchestrator.memoryEnv" $values.resources | nindent 12 }}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- range .ports }}
            - name: {{ .name }}
              containerPort: {{ .port }}
            {{- end }}
            - name: metrics
              containerPort: 8082
            - name: probes
              containerPort: 8083
          {{- include "di-orchestrator.probes" $root | nindent 10 }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            {{- include "di-orchestrator.securityContext" $root | nindent 12 }}
{{- end }}

{{/* The ServiceAccount of a program. */}}
{{- define "di-orchestrator.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: di-orchestrator-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
