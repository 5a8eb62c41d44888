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
      {{- if or $values.hostNetwork .alone }}
      # Where each node has one, there is no node whose port is free for another. A volume has one pod.
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
      annotations:
        # Pods read the configuration when they start.
        checksum/configuration: {{ include "di-orchestrator.configuration" $root | sha256sum }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "di-orchestrator.accountName" . }}
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
        {{- $context := $root.Values.podSecurityContext | default dict }}
        {{- with .fsGroup }}
        {{- $context = merge (deepCopy $context) (dict "fsGroup" .) }}
        {{- end }}
        {{- $context | toYaml | nindent 8 }}
      {{- with include "di-orchestrator.placement" $values }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        - {{ toYaml . | nindent 10 | trim }}
          {{- if not .labelSelector }}
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
          # Only pods of one revision are to be apart: in a rollout, those that go
          # would draw those that come together on one node.
          matchLabelKeys: [pod-template-hash]
          {{- end }}
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "di-orchestrator.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - {{ .component }}
            - --config=/etc/di-orchestrator/configuration.yaml
            {{- if ne $root.Values.log.level "info" }}
            - --log-level={{ $root.Values.log.level }}
            {{- end }}
            {{- range .args }}
            - {{ . }}
            {{- end }}
            {{- range $values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            {{- include "di-orchestrator.env" . | nindent 12 }}
          {{- with $values.envFrom }}
          envFrom:
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
            {{- $values.resources | default dict | toYaml | nindent 12 }}
          securityContext:
            {{- $root.Values.securityContext | default dict | toYaml | nindent 12 }}
          volumeMounts:
            - name: configuration
              mountPath: /etc/di-orchestrator
              readOnly: true
            {{- with $values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: configuration
          configMap:
            name: di-orchestrator-configuration
        {{- with $values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* The environment of a program: the chart's, without the variables that its values set, and those. */}}
{{- define "di-orchestrator.env" -}}
{{- $own := include "di-orchestrator.podNamespace" .root | fromYamlArray -}}
{{- with include "di-orchestrator.memory" .values.resources -}}
{{- $own = append $own (dict "name" "GOMEMLIMIT" "value" .) -}}
{{- end -}}
{{- $given := dict -}}
{{- range .values.env }}{{ $_ := set $given .name true }}{{ end -}}
{{- $env := list -}}
{{- range concat $own (.env | default list) -}}
{{- if not (hasKey $given .name) }}{{ $env = append $env . }}{{ end -}}
{{- end -}}
{{- concat $env (.values.env | default list) | toYaml -}}
{{- end }}

{{/* The ServiceAccount of a program. */}}
{{- define "di-orchestrator.account" -}}
{{- if .values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "di-orchestrator.accountName" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "di-orchestrator.labels" .root | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
