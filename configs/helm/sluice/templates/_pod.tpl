{{- define "sluice.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* sluice.labels are those of every object. */}}
{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/*
sluice.selector are the labels by which a DaemonSet knows its pods. A group's DaemonSet keeps them
in every mode, because they can't change: so its pods are replaced, node after node.
*/}}
{{- define "sluice.selector" -}}
{{ include "sluice.labels" .root }}
app.kubernetes.io/component: node{{ .group.suffix }}
{{- end -}}

{{/* sluice.account are fields that the specs of all pods have. None gets a token by itself. */}}
{{- define "sluice.account" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
priorityClassName: {{ .Values.priorityClassName }}
{{- end -}}

{{/*
sluice.kubeUser is the user and the group of sluice-kube. The plugin's socket admits this user, so
it is no user that many images have, as 65532 is, and none that systemd or Debian give to anybody.
*/}}
{{- define "sluice.kubeUser" -}}65527{{- end -}}

{{/* sluice.token is the volume with a token of the pod's account. */}}
{{- define "sluice.token" -}}
- name: token
  projected:
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end -}}

{{/* sluice.sockets are the mounts of the folders in which sluice-kube serves the kubelet. */}}
{{- define "sluice.sockets" -}}
- {name: registration, mountPath: {{ .kubeletDir }}/plugins_registry/cpus.sluice.dev}
- {name: claims, mountPath: {{ .kubeletDir }}/plugins/cpus.sluice.dev}
{{- end -}}

{{- define "sluice.security" -}}
runAsUser: 0 # cgroup files are root's
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
seccompProfile: {type: RuntimeDefault}
{{- if and .group.egress (semverCompare ">=1.30-0" .root.Capabilities.KubeVersion.Version) }}
# The runtime's profile does not let it open the networks of the host's processes.
appArmorProfile: {type: Unconfined}
{{- end }}
capabilities:
  drop: [ALL]
  # Why each: configs/systemd/sluice.service{{ if .group.egress }} and egress.conf{{ end }}{{ if .group.cycles }} and cycles.conf{{ end }}. Not SYS_RESOURCE: where the runtime
  # itself lacks it, as in nested clusters, the container could not start. Without
  # it pressure wakes the loop after up to 2 s.
  add: [DAC_OVERRIDE, SYS_NICE, SYS_PTRACE{{ if .group.egress }}, SYS_ADMIN, NET_ADMIN{{ end }}{{ if .group.cycles }}, PERFMON{{ end }}]
{{- end -}}

{{/* sluice.mounts are those of the plugin and of restore. */}}
{{- define "sluice.mounts" -}}
- {name: state, mountPath: /var/lib/sluice}
- {name: run, mountPath: /run/sluice}
- {name: sys, mountPath: /host/sys, mountPropagation: HostToContainer}
- {name: proc, mountPath: /host/proc}
- {name: kubelet, mountPath: /host{{ .kubeletDir }}, readOnly: true}
{{- end -}}

{{- define "sluice.volumes" -}}
# The audit trail and the batch switch.
- name: state
  hostPath: {path: /var/lib/sluice, type: DirectoryOrCreate}
# The original values of what Sluice has changed, in the node's memory: they must
# outlive the pod. The status socket, for sluice on the node itself.
- name: run
  hostPath: {path: /run/sluice, type: DirectoryOrCreate}
# Cgroups, the machine, workqueues; resctrl and debugfs, where they are mounted.
- name: sys
  hostPath: {path: /sys, type: Directory}
# The load; /proc/sys/vm (globalWatermark) and /proc/irq (steer) are written.
- name: proc
  hostPath: {path: /proc, type: Directory}
# The kubelet's record of what pods requested, and whether its own CPU manager pins CPUs.
# Also the file system of node.disk.
- name: kubelet
  hostPath: {path: {{ .kubeletDir }}, type: Directory}
{{- end -}}

{{/* sluice.restore is the spec of a pod that gives its node back. */}}
{{- define "sluice.restore" -}}
serviceAccountName: {{ .account | default .root.Release.Name }}
{{ include "sluice.account" .root }}
{{ include "sluice.nodes" .group }}
terminationGracePeriodSeconds: 5
hostPID: true # core-scheduling cookies are taken from processes
# It waits for the plugin to end, and gives all back. If that fails, the kubelet runs
# it again.
initContainers:
- name: restore
  image: {{ include "sluice.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [restore, --host-root, /host, --wait, 5m]
  resources:
    requests: {cpu: 100m, memory: 32Mi}
    limits: {memory: 128Mi}
  securityContext:
    {{- include "sluice.security" . | nindent 4 }}
  volumeMounts:
  {{- include "sluice.mounts" .group | nindent 2 }}
# It runs once more, which finds nothing to give back, and stays: a DaemonSet's
# container that ends is started again.
containers:
- name: done
  image: {{ include "sluice.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [restore, --host-root, /host, --stay]
  resources:
    requests: {cpu: 100m, memory: 32Mi}
    limits: {memory: 128Mi}
  securityContext:
    {{- include "sluice.security" . | nindent 4 }}
  volumeMounts:
  {{- include "sluice.mounts" .group | nindent 2 }}
volumes:
{{ include "sluice.volumes" .group }}
{{- end -}}

{{/* sluice.plugin is the spec of a pod with the plugin. */}}
{{- define "sluice.plugin" -}}
serviceAccountName: {{ .root.Release.Name }}
{{ include "sluice.account" .root }}
{{ include "sluice.nodes" .group }}
terminationGracePeriodSeconds: 10
{{- if .group.hostPID }}
# The kernel lists a container's processes by the reader's own numbers: without
# it core-sched and RDT would find none.
hostPID: true
{{- end }}
containers:
- name: sluice
  image: {{ include "sluice.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [run, --config, /etc/sluice/sluice.yaml, --host-root, /host{{ if .root.Values.featureLabels }}, --labels-file, /host/etc/kubernetes/node-feature-discovery/features.d/sluice{{ end }}{{ if .root.Values.kube.enabled }}, --kube-socket, /run/sluice-kube/kube.sock, --kube-uid, {{ include "sluice.kubeUser" .root | quote }}{{ if .root.Values.kube.dra.enabled }}, --cdi-dir, /host/var/run/cdi, --claim-devices, {{ .root.Values.kube.dra.devices }}{{ end }}{{ with .root.Values.kube.fleetKeys }}, --fleet-keys, {{ join "," . | quote }}{{ end }}{{ end }}]
  {{- with .group.goMemoryLimit }}
  env:
  - {name: GOMEMLIMIT, value: {{ . }}}
  {{- end }}
  resources:
    {{- toYaml .group.resources | nindent 4 }}
  securityContext:
    {{- if .root.Values.kube.enabled }}
    runAsGroup: {{ include "sluice.kubeUser" .root }} # of the socket, which it then makes for sluice-kube
    {{- end }}
    {{- include "sluice.security" . | nindent 4 }}
  {{- with .root.Values.metrics.listen }}
  ports:
  - {name: metrics, containerPort: {{ regexFind "[0-9]+$" . }}}
  {{- end }}
  startupProbe: # does the plugin answer on its status socket?
    exec: {command: [/usr/bin/sluice, status]}
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 30
  readinessProbe:
    exec: {command: [/usr/bin/sluice, status]}
    periodSeconds: 30
    timeoutSeconds: 10
  livenessProbe:
    exec: {command: [/usr/bin/sluice, status]}
    periodSeconds: 30
    timeoutSeconds: 10
    failureThreshold: 3
  volumeMounts:
  - {name: config, mountPath: /etc/sluice, readOnly: true}
  - {name: nri, mountPath: /var/run/nri}
  - {name: offers, mountPath: /run/sluice-offers}
  {{- include "sluice.mounts" .group | nindent 2 }}
  {{- if .root.Values.featureLabels }}
  - {name: features, mountPath: /host/etc/kubernetes/node-feature-discovery/features.d}
  {{- end }}
  {{- if .root.Values.kube.enabled }}
  - {name: kube, mountPath: /run/sluice-kube}
  {{- if .root.Values.kube.dra.enabled }}
  - {name: cdi, mountPath: /host/var/run/cdi}
  {{- end }}
  {{- end }}
  {{- if .group.runtimeDirs }}
  # Propagated: a container's root file system, mounted below, must not stay here
  # after the container's end.
  {{- end }}
  {{- range $i, $dir := .group.runtimeDirs }}
  - {name: runtime-{{ $i }}, mountPath: /host{{ $dir }}, readOnly: true, mountPropagation: HostToContainer}
  {{- end }}
volumes:
- name: config
  configMap: {name: {{ include "sluice.config" . }}}
# The folder, not the socket: the runtime makes that anew when it restarts.
- name: nri
  hostPath: {path: /var/run/nri, type: Directory}
# What host applications may use, for them to read.
- name: offers
  hostPath: {path: /run/sluice-offers, type: DirectoryOrCreate}
{{ include "sluice.volumes" .group }}
{{- if .root.Values.featureLabels }}
# The file sluice there, from which Node Feature Discovery makes labels.
- name: features
  hostPath: {path: /etc/kubernetes/node-feature-discovery/features.d, type: DirectoryOrCreate}
{{- end }}
{{- if .root.Values.kube.enabled }}
# The socket for sluice-kube, which is in a pod of its own.
- name: kube
  hostPath: {path: /run/sluice-kube, type: DirectoryOrCreate}
{{- if .root.Values.kube.dra.enabled }}
# The specs of prepared claims, which the runtime reads.
- name: cdi
  hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}
{{- end }}
{{- end }}
{{- if .group.runtimeDirs }}
# The runtime's CRI socket, for control.eviction with by: cri. The folder, not the
# socket, as above; where the runtime is another one, the folder is made and stays empty.
{{- end }}
{{- range $i, $dir := .group.runtimeDirs }}
- name: runtime-{{ $i }}
  hostPath: {path: {{ $dir }}, type: DirectoryOrCreate}
{{- end }}
{{- end -}}
