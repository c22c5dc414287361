package crdtest

func nodeOverlay() kind {
	return kind{
		resource: "nodeoverlays", crd: "karpenter.sh_nodeoverlays.yaml",
		minimal: `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: minimal}
spec: {requirements: []}
`,
		defaulted: "spec: {requirements: []}",
		full: `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: full}
spec:
  requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
  price: "1.5"
  capacity: {example.com/fuse: "8"}
  weight: 10
status:
  conditions: [{type: A, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}]
`,
		examples: join(
			required("spec", "spec.requirements"),
			[]ruleExample{
				{
					rule:         "R_OVL_PRICE",
					field:        "spec",
					accept:       "{price: null, priceAdjustment: '+10%'}",
					reject:       "{priceAdjustment: '+10%'}",
					messageNames: "priceAdjustment",
				},
				{rule: "R_OVL_CAP", field: "spec.capacity", accept: "{example.com/gpu: '1'}", reject: "{cpu: '1'}"},
				{rule: "R_OVL_CAP", field: "spec.capacity", accept: "{hugepages-2Mi: '1'}", reject: "{pods: '1'}"},
				{rule: "P_QTY", field: "spec.capacity.fuse", accept: "1k", reject: "some"},
				{rule: "P_PRICE", field: "spec.price", accept: "'0.0424'", reject: "'-1'"},
				{rule: "P_PRICE", field: "spec.price", accept: "'2'", reject: "$2"},
				{rule: "P_PRICEADJ", field: "spec.priceAdjustment", given: "{spec: {price: null}}", accept: "'-28%'", reject: "'-101%'"},
				{rule: "P_PRICEADJ", field: "spec.priceAdjustment", given: "{spec: {price: null}}", accept: "'+0.5'", reject: "'0.5'"},
				{rule: "P_PRICEADJ", field: "spec.priceAdjustment", given: "{spec: {price: null}}", accept: "'-100%'", reject: "'28%'"},
				{rule: "min", field: "spec.weight", accept: "1", reject: "0"},
				{rule: "max", field: "spec.weight", accept: "10000", reject: "10001"},
				{
					rule:   "R_REQ_NOTIN",
					field:  "spec.requirements",
					accept: "[{key: a, operator: NotIn, values: [b]}]",
					reject: "[{key: a, operator: NotIn, values: []}]",
				},
				{
					rule:   "A_KEY_OVERLAY",
					field:  "spec.requirements[0].key",
					accept: "karpenter.k8s.aws/instance-family",
					reject: "karpenter.k8s.aws/instance-tenancy",
				},
				// Overlays may be for some pools.
				{rule: "R_KEY_DOMAIN", field: "spec.requirements[0].key", accept: "karpenter.sh/nodepool", reject: "karpenter.sh/nodeclaim"},
			},
			requirementItem("spec.requirements"), requirementList("spec.requirements"),
			conditions(), reasons(),
		),
	}
}

func capacityBuffer() kind {
	return kind{
		resource: "capacitybuffers", crd: "autoscaling.x-k8s.io_capacitybuffers.yaml", namespace: "default",
		minimal: `
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: minimal, namespace: default}
spec: {}
`,
		defaulted: "spec: {provisioningStrategy: buffer.x-k8s.io/active-capacity}",
		full: `
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: full, namespace: default}
spec:
  provisioningStrategy: buffer.x-k8s.io/active-capacity
  scalableRef: {apiGroup: apps, kind: Deployment, name: web}
  replicas: 2
  percentage: 25
  limits: {cpu: "12"}
status:
  podTemplateRef: {name: a}
  podTemplateGeneration: 1
  replicas: 1
  provisioningStrategy: buffer.x-k8s.io/active-capacity
  conditions: [{type: A, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}]
`,
		examples: join(
			required("spec", "spec.scalableRef.kind", "spec.scalableRef.name", "status.podTemplateRef.name"),
			[]ruleExample{
				{
					rule:         "R_CB_TMPL",
					field:        "spec",
					given:        "{spec: {scalableRef: null, replicas: null, limits: null}}",
					accept:       "{podTemplateRef: {name: a}, replicas: 1}",
					reject:       "{podTemplateRef: {name: a}}",
					messageNames: "podTemplateRef",
				},
				{
					rule:         "R_CB_TMPL",
					field:        "spec",
					given:        "{spec: {scalableRef: null, replicas: null, limits: null}}",
					accept:       "{podTemplateRef: {name: a}, limits: {cpu: '1'}}",
					reject:       "{podTemplateRef: {name: a}, percentage: 10}",
					messageNames: "podTemplateRef",
				},
				{
					rule:         "R_CB_ONE",
					field:        "spec",
					accept:       "{podTemplateRef: {name: a}, scalableRef: null}",
					reject:       "{podTemplateRef: {name: a}}",
					messageNames: "scalableRef",
				},
				{
					rule:   "required",
					field:  "spec.podTemplateRef.name",
					given:  "{spec: {scalableRef: null, podTemplateRef: {name: a}}}",
					reject: absent,
				},
				{
					rule:   "minLength",
					field:  "spec.podTemplateRef.name",
					given:  "{spec: {scalableRef: null, podTemplateRef: {name: a}}}",
					accept: "a",
					reject: `""`,
				},
				{rule: "minLength", field: "spec.scalableRef.kind", accept: "StatefulSet", reject: `""`},
				{rule: "minLength", field: "spec.scalableRef.name", accept: "a", reject: `""`},
				{rule: "minLength", field: "status.podTemplateRef.name", accept: "a", reject: `""`},
				{rule: "min", field: "spec.replicas", accept: "0", reject: "-1"},
				{rule: "min", field: "spec.percentage", accept: "0", reject: "-1"},
				{rule: "P_QTY", field: "spec.limits.cpu", accept: "500m", reject: "half"},
			},
			conditions(), reasons(),
		),
	}
}
