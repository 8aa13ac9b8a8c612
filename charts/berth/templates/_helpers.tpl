{{- define "berth.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of what belongs to no namespace: releases of one name may stand in two namespaces. */}}
{{- define "berth.clusterName" -}}
{{- printf "%s-%s" (include "berth.name" .) .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "berth.account" -}}
{{- default (include "berth.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "berth.selector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "berth.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: berth
{{ include "berth.selector" . }}
{{- end -}}

{{- define "berth.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* As leader.rs names it: each pool has its own leader. */}}
{{- define "berth.lease" -}}
{{- if .Values.nodePool.value -}}
{{- printf "berth-%s-%s" .Values.schedulerName .Values.nodePool.value -}}
{{- else -}}
{{- printf "berth-%s" .Values.schedulerName -}}
{{- end -}}
{{- end -}}

{{/*
"true" if an object that outlives releases is ours to write: it is absent, or this release made it.
What somebody else made is used as it is; Helm would fail to import it. Arguments: root, apiVersion, kind, name.
*/}}
{{- define "berth.mayWrite" -}}
{{- $found := lookup .apiVersion .kind "" .name -}}
{{- if not $found -}}
true
{{- else -}}
{{- $annotations := default dict $found.metadata.annotations -}}
{{- $labels := default dict $found.metadata.labels -}}
{{- if and (eq (default "" (get $annotations "meta.helm.sh/release-name")) .root.Release.Name)
           (eq (default "" (get $annotations "meta.helm.sh/release-namespace")) .root.Release.Namespace)
           (eq (default "" (get $labels "app.kubernetes.io/managed-by")) "Helm") -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "berth.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "berth.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}
