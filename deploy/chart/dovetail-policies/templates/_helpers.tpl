{{- define "dovetail-policies.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The head of a policy. Takes a dict of root and name. */}}
{{- define "dovetail-policies.head" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    {{- include "dovetail-policies.labels" .root | nindent 4 }}
{{- end -}}

{{/* What a policy about new and changed objects judges. Takes a list of rules. */}}
{{- define "dovetail-policies.changes" -}}
failurePolicy: Fail
matchConstraints:
  resourceRules:
    {{- range . }}
    - {apiGroups: [{{ .group }}], apiVersions: [v1], resources: [{{ .resource }}], operations: [CREATE, UPDATE]}
    {{- end }}
matchConditions:
  # The controller updates annotations and finalizers of objects that were there before the policy.
  - name: changed
    expression: >-
      request.operation == "CREATE" || object.spec != oldObject.spec
      || object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({})
{{- end -}}

{{- define "dovetail-policies.nodePools" -}}
{{ include "dovetail-policies.changes" (list (dict "group" "karpenter.sh" "resource" "nodepools")) }}
{{- end -}}

{{- define "dovetail-policies.nodeClasses" -}}
{{ include "dovetail-policies.changes" (list (dict "group" "karpenter.k8s.aws" "resource" "ec2nodeclasses")) }}
{{- end -}}

{{/* The binding of a policy. Takes a dict of root and name. */}}
{{- define "dovetail-policies.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    {{- include "dovetail-policies.labels" .root | nindent 4 }}
spec:
  policyName: {{ .root.Release.Name }}-{{ .name }}
  validationActions:
    {{- toYaml (required "validationActions is required" .root.Values.validationActions) | nindent 4 }}
  {{- with .root.Values.objectSelector }}
  matchResources:
    objectSelector:
      {{- toYaml . | nindent 6 }}
  {{- end }}
{{- end -}}
