{{/* Name of the chart, for labels. */}}
{{- define "dovetail.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of all objects. */}}
{{- define "dovetail.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "dovetail.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether the chart creates the ServiceAccount: true, or nothing. A section without values has its defaults. */}}
{{- define "dovetail.createsServiceAccount" -}}
{{- if get (.Values.serviceAccount | default (dict "create" true)) "create" -}}true{{- end -}}
{{- end -}}

{{- define "dovetail.serviceAccountName" -}}
{{- if include "dovetail.createsServiceAccount" . -}}
{{- default (include "dovetail.fullname" .) (.Values.serviceAccount).name -}}
{{- else -}}
{{- required "serviceAccount.name is required with serviceAccount.create=false: the controller's rights are bound to it" (.Values.serviceAccount).name -}}
{{- end -}}
{{- end -}}

{{- define "dovetail.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dovetail.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dovetail.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "dovetail.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of an object: the common ones and its own. Takes a dict of root and own. */}}
{{- define "dovetail.annotations" -}}
{{- with mergeOverwrite (dict) (.root.Values.additionalAnnotations | default dict) (get . "own" | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dovetail.image" -}}
{{- with .Values.controller.image -}}
{{- if regexMatch "(^|/)karpenter/controller$" .repository -}}
{{- fail (printf "controller.image.repository is %s, which is Karpenter: remove controller.image (repository, tag and digest), or name Dovetail's image" .repository) -}}
{{- end -}}
{{- if .digest -}}
{{- .repository }}{{ with .tag }}:{{ . }}{{ end }}@{{ .digest -}}
{{- else -}}
{{- .repository }}:{{ .tag | default $.Chart.AppVersion -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Terms of the controller's own pods: pod affinity and topology spread without a selector. Takes a dict of terms and root. */}}
{{- define "dovetail.selected" -}}
{{- $labels := dict "matchLabels" (include "dovetail.selectorLabels" .root | fromYaml) -}}
{{- $out := list -}}
{{- range .terms -}}
{{- $out = append $out (merge (deepCopy .) (hasKey . "labelSelector" | ternary dict (dict "labelSelector" (deepCopy $labels)))) -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}

{{- define "dovetail.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- range list "podAffinity" "podAntiAffinity" -}}
{{- $pods := get $affinity . | default dict -}}
{{- with get $pods "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (include "dovetail.selected" (dict "terms" . "root" $) | fromYamlArray) -}}
{{- end -}}
{{- range get $pods "preferredDuringSchedulingIgnoredDuringExecution" | default list -}}
{{- $_ := set . "podAffinityTerm" (include "dovetail.selected" (dict "terms" (list .podAffinityTerm) "root" $) | fromYamlArray | first) -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* The settings that are environment variables of their own name, in the order of their documentation. */}}
{{- define "dovetail.settings" -}}
clusterName clusterEndpoint clusterCABundle isolatedVPC eksControlPlane vmMemoryOverheadPercent interruptionQueue
reservedENIs disableDryRun enableZonalShift amiRefreshInterval subnetRefreshInterval securityGroupRefreshInterval legacyNodeRepair
batchMaxDuration batchIdleDuration preferencePolicy minValuesPolicy ignoreDRARequests disableClusterStateObservability
schedulerConfig kubeClientQPS kubeClientBurst enableProfiling disableControllerWarmup disableLeaderElection
leaderElectionName leaderElectionNamespace
shadow nodeOverheadCost preferenceCost validatePlans panicSnapshotDir recorderSize blastRadius maxForcedExpirations maxFailedReplacements surgeDrain surgeTimeout startupTaintGracePeriod joinGracePeriod repairStaleTaints
{{- end -}}

{{/* Name of the environment variable of a setting. */}}
{{- define "dovetail.variable" -}}
{{- . | replace "ENIs" "Enis" | snakecase | upper -}}
{{- end -}}

{{/* Text of a value: numbers in full, objects as JSON. */}}
{{- define "dovetail.text" -}}
{{- if kindIs "string" . -}}{{ . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}

{{/* Name of a gate: draEFA is DRAEFA, nodeRepair is NodeRepair. */}}
{{- define "dovetail.gate" -}}
{{- if hasPrefix "dra" . -}}DRA{{ trimPrefix "dra" . }}{{- else -}}{{ substr 0 1 . | upper }}{{ substr 1 (len .) . }}{{- end -}}
{{- end -}}

{{/* Gates of AWS: those of the settings, and both of DRA with enableDRA. */}}
{{- define "dovetail.awsGates" -}}
{{- $gates := deepCopy (.Values.settings.awsFeatureGates | default dict) -}}
{{- if .Values.settings.enableDRA -}}
{{- range list "draNVIDIAGPU" "draEFA" -}}
{{- if and (hasKey $gates .) (not (kindIs "invalid" (get $gates .))) -}}
{{- fail (printf "settings.enableDRA turns both gates of DRA on: remove settings.awsFeatureGates.%s, or set enableDRA to false" .) -}}
{{- end -}}
{{- $_ := set $gates . true -}}
{{- end -}}
{{- end -}}
{{- toYaml $gates -}}
{{- end -}}

{{/* Whether resource claims are ignored: not with enableDRA or a gate of DRA. */}}
{{- define "dovetail.ignoreDRARequests" -}}
{{- $value := .Values.settings.ignoreDRARequests -}}
{{- $gates := include "dovetail.awsGates" . | fromYaml -}}
{{- if and .Values.settings.enableDRA (not (kindIs "invalid" $value)) -}}
{{- fail "settings.enableDRA means that resource claims are not ignored: remove settings.ignoreDRARequests, or set enableDRA to false" -}}
{{- end -}}
{{- if or (get $gates "draNVIDIAGPU") (get $gates "draEFA") -}}false
{{- else if kindIs "invalid" $value -}}true
{{- else -}}{{ include "dovetail.text" $value }}
{{- end -}}
{{- end -}}

{{/* Gates as Name=bool,... */}}
{{- define "dovetail.gates" -}}
{{- $gates := list -}}
{{- range $name, $on := . -}}
{{- if not (kindIs "invalid" $on) -}}
{{- $gates = append $gates (printf "%s=%v" (include "dovetail.gate" $name) $on) -}}
{{- end -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}

{{/* All environment variables. Those in controller.env override settings. */}}
{{- define "dovetail.env" -}}
{{- $own := .Values.controller.env | default list -}}
{{- $names := list -}}
{{- range $own -}}{{- $names = append $names .name -}}{{- end -}}
{{- $out := list -}}
{{- range include "dovetail.ownEnv" . | fromYamlArray -}}
{{- if not (has .name $names) -}}{{- $out = append $out . -}}{{- end -}}
{{- end -}}
{{- toYaml (concat $out $own) -}}
{{- end -}}

{{/* Environment variables of the settings. */}}
{{- define "dovetail.ownEnv" -}}
{{- $settings := .Values.settings -}}
{{- if and $settings.legacyNodeRepair (get ($settings.featureGates | default dict) "terminateFirstRepair") -}}
{{- fail "settings.legacyNodeRepair repairs nodes without launching replacements first: remove settings.featureGates.terminateFirstRepair" -}}
{{- end -}}
{{- range splitList " " (include "dovetail.settings" . | replace "\n" " ") -}}
{{- if . -}}
{{- $value := get $settings . -}}
{{- if eq . "ignoreDRARequests" -}}{{- $value = include "dovetail.ignoreDRARequests" $ -}}{{- end -}}
{{- if and (hasKey $settings .) (not (kindIs "invalid" $value)) (ne (toString $value) "") }}
- name: {{ include "dovetail.variable" . }}
  value: {{ include "dovetail.text" $value | quote }}
{{- end -}}
{{- end -}}
{{- end }}
{{- with include "dovetail.gates" ($settings.featureGates | default dict) }}
- name: FEATURE_GATES
  value: {{ . | quote }}
{{- end }}
{{- with include "dovetail.gates" (include "dovetail.awsGates" . | fromYaml) }}
- name: AWS_FEATURE_GATES
  value: {{ . | quote }}
{{- end }}
- name: LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
- name: LOG_OUTPUT_PATHS
  value: {{ join "," .Values.logOutputPaths | quote }}
- name: LOG_ERROR_OUTPUT_PATHS
  value: {{ join "," .Values.logErrorOutputPaths | quote }}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | toString | quote }}
{{- with (.Values.controller.console).port }}
- name: CONSOLE_PORT
  value: {{ . | toString | quote }}
{{- end }}
{{- with (.Values.controller.console).certDir }}
- name: CONSOLE_CERT_DIR
  value: {{ . | quote }}
{{- end }}
{{- with .Values.controller.metrics.secure }}
- name: METRICS_SECURE
  value: {{ . | toString | quote }}
{{- end }}
{{- with .Values.controller.metrics.certDir }}
- name: METRICS_CERT_DIR
  value: {{ . | quote }}
{{- end }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | toString | quote }}
- name: RECORDER_PATH
  value: /var/lib/dovetail/decisions.rec
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: "0"
      resource: limits.memory
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: 1m
      resource: requests.cpu
{{- end -}}

{{/* Security context of a container of the image. */}}
{{- define "dovetail.containerSecurity" -}}
runAsUser: 65532
runAsGroup: 65532
runAsNonRoot: true
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- range $name := list "appArmorProfile" "seLinuxOptions" "seccompProfile" }}
{{- with get ($.Values.controller.securityContext | default dict) $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Rights of what is served only to clients that the API server authenticates and lets get the path of that name: the controller's, to
have them reviewed, and a role for the clients. Takes a dict of root and name. */}}
{{- define "dovetail.reviewedAccess" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "dovetail.fullname" .root }}-{{ .name }}-auth
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
  {{- with include "dovetail.annotations" (dict "root" .root) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
rules:
  - apiGroups: [authentication.k8s.io]
    resources: [tokenreviews]
    verbs: [create]
  - apiGroups: [authorization.k8s.io]
    resources: [subjectaccessreviews]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "dovetail.fullname" .root }}-{{ .name }}-auth
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
  {{- with include "dovetail.annotations" (dict "root" .root) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "dovetail.fullname" .root }}-{{ .name }}-auth
subjects:
  - kind: ServiceAccount
    name: {{ include "dovetail.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
---
# Bind it to the ServiceAccount of the client that scrapes.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "dovetail.fullname" .root }}-{{ .name }}-reader
  labels:
    {{- include "dovetail.labels" .root | nindent 4 }}
  {{- with include "dovetail.annotations" (dict "root" .root) }}
  {{- . | trim | nindent 2 }}
  {{- end }}
rules:
  - nonResourceURLs: [/{{ .name }}]
    verbs: [get]
{{- end -}}
