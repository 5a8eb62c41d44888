{{/*
The configuration of the programs: that of the values, and what other values lead to. A value or flag under a former name
is refused, unless it is the former default.
*/}}
{{- define "di-orchestrator.configuration" -}}
{{- $left := list -}}
{{- range $moved := .Files.Get "files/moved.yaml" | fromYamlArray -}}
{{- $at := $.Values -}}
{{- range $key := splitList "." $moved.from -}}
{{- $at = ternary (get ($at | default dict) $key) nil (kindIs "map" $at) -}}
{{- end -}}
{{- if not (or (kindIs "invalid" $at) (eq (toJson $at) (toJson $moved.default)) (and (kindIs "string" $at) (empty $at))) -}}
{{- $left = append $left (printf "%s is %s" $moved.from $moved.to) -}}
{{- end -}}
{{- end -}}
{{- $former := .Files.Get "files/former-flags.yaml" | fromYaml -}}
{{- range $component := list "operator" "webhook" "server" "history" -}}
{{- range $arg := (index $.Values $component).extraArgs | default list -}}
{{- $flag := regexReplaceAll "^--?([^=]*).*$" $arg "${1}" -}}
{{- if and (hasPrefix "-" $arg) (hasKey $former $flag) -}}
{{- $left = append $left (printf "--%s in %s.extraArgs is %s" $flag $component (get $former $flag | default "gone" | printf "configuration.%s" | replace "configuration.gone" "gone")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $left -}}
{{- fail (printf "values with other names: %s" (join ", " $left)) -}}
{{- end -}}
{{- if and (((.Values.configuration).history).require) (not .Values.history.enabled) -}}
{{- fail "configuration.history.require: needs history.enabled, which records the jobs that then wait for it" -}}
{{- end -}}
{{- $common := dict -}}
{{- if .Values.certManager.enabled }}{{ $_ := set $common "certificateSecret" "di-orchestrator-webhook-tls" }}{{ end -}}
{{- if not .Values.takeover.enabled }}{{ $_ := set $common "takeover" false }}{{ end -}}
{{- $operator := dict -}}
{{- if .Values.aggregatorConfig.template }}{{ $_ := set $operator "defaultAggregatorConfig" "di-orchestrator-aggregator-config" }}{{ end -}}
{{- $classes := dict -}}
{{- range $priority := list "normal" "high" -}}
{{- with include "di-orchestrator.priorityClass" (dict "root" $ "priority" $priority) }}{{ $_ := set $classes $priority . }}{{ end -}}
{{- end -}}
{{- if $classes }}{{ $_ := set $operator "priorityClasses" $classes }}{{ end -}}
{{- if .Values.history.enabled -}}
{{- $url := printf "https://di-history.%s.%s" .Release.Namespace (include "di-orchestrator.serviceDomain" .) -}}
{{- $files := dict "url" $url "tokenFile" "/var/run/secrets/di-history/token" "caFile" "/var/run/secrets/di-history/ca.crt" -}}
{{- $given := (.Values.configuration).operator | default dict -}}
{{- /* Another optimizer, or history, is the user's choice. */ -}}
{{- if not ((($given).autoscaler).optimizer).url }}{{ $_ := set $operator "autoscaler" (dict "optimizer" $files) }}{{ end -}}
{{- if not ((($given).allocator).history).url }}{{ $_ := set $operator "allocator" (dict "history" $files) }}{{ end -}}
{{- end -}}
{{- $own := dict "apiVersion" "config.diengine.opendilab.org/v1alpha1" "kind" "Configuration" -}}
{{- if $common }}{{ $_ := set $own "common" $common }}{{ end -}}
{{- if $operator }}{{ $_ := set $own "operator" $operator }}{{ end -}}
{{- mergeOverwrite (deepCopy (.Values.configuration | default dict)) $own | toYaml -}}
{{- end }}

{{/* The namespaces whose jobs are run, as a list; empty for all. */}}
{{- define "di-orchestrator.watchNamespaces" -}}
{{- ((.Values.configuration).common).watchNamespaces | default list | toYaml -}}
{{- end }}

{{/* The domain of the cluster's Services. */}}
{{- define "di-orchestrator.serviceDomain" -}}
{{- ((.Values.configuration).common).serviceDomain | default "svc.cluster.local" -}}
{{- end }}
