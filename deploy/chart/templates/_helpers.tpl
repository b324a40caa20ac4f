{{- /* Clients look for the manager in this namespace and no other. */ -}}
{{- define "kubebridge.home" -}}
{{- if ne .Release.Namespace "kubebridge" -}}
{{- fail "clients look in the namespace kubebridge: helm install --namespace kubebridge --create-namespace" -}}
{{- end -}}
kubebridge
{{- end -}}

{{- define "kubebridge.labels" -}}
app.kubernetes.io/name: traffic-manager
app.kubernetes.io/part-of: kubebridge
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "kubebridge.image" -}}
{{- $registry := required "image.registry says where the image is" .Values.image.registry -}}
{{- if not (or .Values.image.digest .Values.image.tag) -}}
{{- fail "image.digest says which image it is, or image.tag" -}}
{{- end -}}
{{- $registry | trimSuffix "/" }}/{{ .Values.image.repository }}
{{- with .Values.image.tag }}:{{ . }}{{ end }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "kubebridge.readServices" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- end -}}

{{- define "kubebridge.subjects" -}}
{{- range .Values.allow.users }}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: {{ . | quote }}
{{- end }}
{{- range .Values.allow.groups }}
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: {{ . | quote }}
{{- end }}
{{- end -}}
