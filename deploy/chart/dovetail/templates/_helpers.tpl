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

{{- define "dovetail.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "dovetail.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
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
{{- fail (printf "controller.image.repository is %s, which is Karpenter: remove it, or name Dovetail's image" .repository) -}}
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
{{- $anti := get $affinity "podAntiAffinity" | default dict -}}
{{- with get $anti "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $_ := set $anti "requiredDuringSchedulingIgnoredDuringExecution" (include "dovetail.selected" (dict "terms" . "root" $) | fromYamlArray) -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* The settings that are environment variables of their own name, in the order of their documentation. */}}
{{- define "dovetail.settings" -}}
clusterName clusterEndpoint clusterCABundle isolatedVPC eksControlPlane vmMemoryOverheadPercent interruptionQueue
reservedENIs disableDryRun enableZonalShift amiRefreshInterval subnetRefreshInterval
batchMaxDuration batchIdleDuration preferencePolicy minValuesPolicy ignoreDRARequests disableClusterStateObservability
schedulerConfig kubeClientQPS kubeClientBurst enableProfiling disableControllerWarmup disableLeaderElection
leaderElectionName leaderElectionNamespace
nodeOverheadCost validatePlans panicSnapshotDir maxFailedReplacements startupTaintGracePeriod joinGracePeriod repairStaleTaints
{{- end -}}

{{/* Name of the environment variable of a setting. */}}
{{- define "dovetail.variable" -}}
{{- . | replace "ENIs" "Enis" | snakecase | upper -}}
{{- end -}}

{{/* Text of a value: numbers in full, objects as JSON. */}}
{{- define "dovetail.text" -}}
{{- if kindIs "string" . -}}{{ . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}

{{/* Gates as Name=bool,... */}}
{{- define "dovetail.gates" -}}
{{- $gates := list -}}
{{- range $name, $on := . -}}
{{- if not (kindIs "invalid" $on) -}}
{{- $gates = append $gates (printf "%s%s=%v" (substr 0 1 $name | upper) (substr 1 (len $name) $name) $on) -}}
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
{{- range splitList " " (include "dovetail.settings" . | replace "\n" " ") -}}
{{- if . -}}
{{- $value := get $settings . -}}
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
{{- with include "dovetail.gates" ($settings.awsFeatureGates | default dict) }}
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
