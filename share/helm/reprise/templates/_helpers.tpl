{{- define "reprise.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- define "reprise.selector" -}}
app.kubernetes.io/name: reprise
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "reprise.labels" -}}
{{ include "reprise.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
{{- define "reprise.image" -}}
{{ required "image.repository: name of the image that Containerfile builds" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "reprise.container" -}}
image: {{ include "reprise.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
{{- define "reprise.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  failureThreshold: 900
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}
{{- define "reprise.mounts" -}}
- {name: model, mountPath: /models, readOnly: true}
- {name: secrets, mountPath: /etc/reprise/secrets, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end }}
{{- define "reprise.volumes" -}}
- name: model
  {{- toYaml (required "model.volume: a volume with the model" .Values.model.volume) | nindent 2 }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ required "cluster.existingSecret: a Secret with the cluster's secret" .Values.cluster.existingSecret }}
          items:
            - {key: {{ .Values.cluster.key }}, path: cluster-secret}
      - secret:
          name: {{ required "apiKeys.existingSecret: a Secret with lines of API keys" .Values.apiKeys.existingSecret }}
          items:
            - {key: {{ .Values.apiKeys.key }}, path: api-keys}
- name: tmp
  emptyDir: {}
{{- end }}
{{- define "reprise.scheduling" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "reprise.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
