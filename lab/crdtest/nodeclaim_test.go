package crdtest

func nodeClaim() kind {
	return kind{
		resource: "nodeclaims", crd: "karpenter.sh_nodeclaims.yaml",
		minimal: `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: minimal}
spec:
  requirements: []
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
`,
		defaulted: `
spec:
  expireAfter: 720h
  requirements: []
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
`,
		full: `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: full}
spec:
  requirements: [{key: kubernetes.io/arch, operator: NotIn, values: [amd64], minValues: 1}]
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  resources: {requests: {cpu: "1"}}
  taints: [{key: a, value: b, effect: NoSchedule, timeAdded: "2026-01-02T03:04:05Z"}]
  startupTaints: [{key: c, value: d, effect: NoSchedule, timeAdded: "2026-01-02T03:04:05Z"}]
  terminationGracePeriod: 1h
  expireAfter: 720h
status:
  nodeName: a
  providerID: b
  imageID: c
  capacity: {cpu: "2"}
  allocatable: {cpu: "1"}
  lastPodEventTime: "2026-01-02T03:04:05Z"
  conditions: [{type: A, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}]
`,
		examples: join(
			required("spec", "spec.requirements"),
			[]ruleExample{
				{rule: "R_IMMUTABLE", field: "spec", update: true, accept: "{expireAfter: 720h}", reject: "{expireAfter: 721h}"},
				{
					rule:   "A_KEY",
					field:  "spec.requirements[0].key",
					accept: "karpenter.k8s.aws/capacity-reservation-id",
					reject: "karpenter.k8s.aws/instance-pods",
				},
				// Unlike pools, claims name their pool.
				{rule: "R_KEY_DOMAIN", field: "spec.requirements[0].key", accept: "karpenter.sh/nodepool", reject: "karpenter.sh/nodeclaim"},
				{rule: "P_QTY", field: "spec.resources.requests.cpu", accept: "1500m", reject: "many"},
				{rule: "P_DUR", field: "spec.terminationGracePeriod", accept: "0s", reject: "Never"},
				{rule: "P_DURNEVER", field: "spec.expireAfter", accept: "Never", reject: "never"},
				{rule: "P_QTY", field: "status.capacity.cpu", accept: "3", reject: "three"},
				{rule: "P_QTY", field: "status.allocatable.cpu", accept: "3", reject: "three"},
				{rule: "date", field: "status.lastPodEventTime", accept: `"2026-01-02T03:04:05Z"`, reject: "yesterday"},
				{rule: "P_REASON0", field: "status.conditions[0].reason", accept: `""`, reject: "2Found"},
				{rule: "P_REASON0", field: "status.conditions[0].reason", accept: absent, reject: "Found it"},
			},
			requirementItem(
				"spec.requirements",
			),
			requirementList("spec.requirements"),
			minValues("spec.requirements"),
			requirementValues("spec.requirements"),
			nodeClassRef("spec.nodeClassRef"),
			taints("spec.taints"),
			taints("spec.startupTaints"),
			conditions(),
		),
	}
}
