{{/*
sluice.groups is the list of the node groups with all their values, as YAML. The last one has the
nodes that no group takes. Each has
  suffix        "" or "-NAME", for the names of its objects
  exclude       the nodeSelectorTerms that keep it off the nodes of the groups before it
*/}}
{{- define "sluice.groups" -}}
{{- $defaults := pick .Values "mode" "config" "tolerations" "maxUnavailable" "resources" "goMemoryLimit" "hostPID" "egress" "cycles" "kubeletDir" "runtimeDirs" -}}
{{- $rest := dict "name" "" "nodeSelector" .Values.nodeSelector -}}
{{- $groups := list -}}
{{- $names := list -}}
{{- $exclude := list list -}}
{{- range append .Values.nodeGroups $rest -}}
  {{- $group := dict "suffix" "" "exclude" list -}}
  {{- range $key, $value := $defaults -}}{{- $_ := set $group $key $value -}}{{- end -}}
  {{- range $key, $value := . -}}{{- $_ := set $group $key $value -}}{{- end -}}
  {{- if has .name $names -}}{{- fail (printf "nodeGroups: two groups are called %q; give each a name of its own" .name) -}}{{- end -}}
  {{- $names = append $names .name -}}
  {{- if .name -}}{{- $_ := set $group "suffix" (printf "-%s" .name) -}}{{- end -}}
  {{- /* YAML reads on and off as true and false where they are not quoted. */ -}}
  {{- if kindIs "bool" $group.mode -}}{{- $_ := set $group "mode" (ternary "on" "off" $group.mode) -}}{{- end -}}
  {{- if and (eq (toString $.Values.mode) "restore") (ne $group.mode "off") -}}{{- $_ := set $group "mode" "restore" -}}{{- end -}}
  {{- if $names | first | eq .name | not -}}{{- $_ := set $group "exclude" $exclude -}}{{- end -}}
  {{- $groups = append $groups $group -}}
  {{- /* Not in this group: one of its labels differs. Each combination is a term. */ -}}
  {{- $next := list -}}
  {{- range $term := $exclude -}}
    {{- range $key, $value := $group.nodeSelector -}}
      {{- $next = append $next (append $term (dict "key" $key "operator" "NotIn" "values" (list $value))) -}}
    {{- end -}}
  {{- end -}}
  {{- $exclude = $next -}}
  {{- if gt (len $exclude) 256 -}}{{- fail "nodeGroups: the groups' nodeSelectors have too many combinations of labels; give the groups one label each" -}}{{- end -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}

{{/* sluice.nodes are the fields of a pod's spec that choose the group's nodes. */}}
{{- define "sluice.nodes" -}}
nodeSelector: {kubernetes.io/os: {{ get .nodeSelector "kubernetes.io/os" | default "linux" }}
  {{- range $key, $value := omit .nodeSelector "kubernetes.io/os" }}, {{ $key }}: {{ quote $value }}{{ end }}}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .exclude }}
# The groups before this one have these nodes.
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      {{- range . }}
      - matchExpressions:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end -}}

{{/* sluice.yaml is the configuration of the group: its text with the chart's own keys. */}}
{{- define "sluice.yaml" -}}
{{- $root := .root -}}
{{- $text := .group.config | default "" -}}
{{- $where := printf "config%s" (ternary "" (printf " of node group %s" .group.name) (empty .group.name)) -}}
{{- $parsed := fromYaml $text -}}
{{- with $parsed.Error -}}{{- fail (printf "%s is not YAML: %s" $where .) -}}{{- end -}}
{{- range $key, $fix := dict "mode" "mode" "metrics" "metrics.listen and metrics.containers" -}}
  {{- if hasKey $parsed $key -}}{{- fail (printf "%s has the key %q: remove it there, and set the chart's value %s" $where $key $fix) -}}{{- end -}}
{{- end -}}
{{- with $parsed.control -}}{{- with .egress -}}
  {{- if not (or $.group.egress (has (.mode | default "off") (list "off" false))) -}}
    {{- fail (printf "%s has control.egress.mode, which needs more capabilities: set the chart's value egress: true, and see docs/security.md" $where) -}}
  {{- end -}}
{{- end -}}
{{- with .culprit -}}
  {{- if and .cpi (not $.group.cycles) -}}
    {{- fail (printf "%s has control.culprit.cpi, which needs another capability: set the chart's value cycles: true, and see docs/security.md" $where) -}}
  {{- end -}}
{{- end -}}{{- end -}}
{{- $list := "(?m)^classify:[ \\t]*(#.*)?\\n((?:[ \\t]*(?:#.*)?\\n)*)( *)- " -}}
{{- if and (hasKey $parsed "classify") (not (regexMatch $list $text)) -}}
  {{- fail (printf "%s has classify in another form than a list with one rule a line: write each rule after \"- \", because the chart puts its own rule first" $where) -}}
{{- end -}}
{{- $own := include "sluice.rule" $root -}}
{{- if eq .group.mode "preview" -}}
# Change nothing, and report what would be changed: step 1 of docs/install.md. "on" lets
# Sluice act.
{{ end -}}
mode: {{ .group.mode }}
{{- if or $root.Values.metrics.listen $root.Values.metrics.containers }}
metrics: {listen: {{ $root.Values.metrics.listen | quote }}, containers: {{ $root.Values.metrics.containers }}}
{{- end }}
{{- if hasKey $parsed "classify" }}
{{- $indent := regexFind $list $text | regexFind " *- $" | trimSuffix "- " | len }}
{{ regexReplaceAll $list $text (printf "classify:\n%s\n${2}${3}- " (indent $indent $own)) | trimSuffix "\n" }}
{{- else }}
classify:
{{ $own }}
{{- with $text | trimSuffix "\n" }}
{{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* sluice.rule is the first rule of classify. */}}
{{- define "sluice.rule" -}}
# Sluice itself: with what the pod requests (100m) it would fall behind when the CPU is
# short, which is when it is needed. It weighs as much as a pod that requests 1 CPU.
- namespaces: [{{ .Release.Namespace }}]
  labels: {app.kubernetes.io/name: sluice}
  set: {class: SYSTEM, weight: 1000%}
{{- end -}}

{{/* sluice.config is the name of the group's ConfigMap. */}}
{{- define "sluice.config" -}}
{{ .root.Release.Name }}{{ .group.suffix }}
{{- if eq .root.Values.configRollout "restart" }}-{{ include "sluice.yaml" . | sha256sum | trunc 10 }}{{ end }}
{{- end -}}
