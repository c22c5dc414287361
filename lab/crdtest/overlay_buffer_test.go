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
		rows: join(
			required("spec", "spec.requirements"),
			[]row{
				{rule: "R_OVL_PRICE", field: "spec", accept: "{price: null, priceAdjustment: '+10%'}", refuse: "{priceAdjustment: '+10%'}", names: "priceAdjustment"},
				{rule: "R_OVL_CAP", field: "spec.capacity", accept: "{example.com/gpu: '1'}", refuse: "{cpu: '1'}"},
				{rule: "R_OVL_CAP", field: "spec.capacity", accept: "{hugepages-2Mi: '1'}", refuse: "{pods: '1'}"},
				{rule: "P_QTY", field: "spec.capacity.fuse", accept: "1k", refuse: "some"},
				{rule: "P_PRICE", field: "spec.price", accept: "'0.0424'", refuse: "'-1'"},
				{rule: "P_PRICE", field: "spec.price", accept: "'2'", refuse: "$2"},
				{rule: "P_PRICEADJ", field: "spec.priceAdjustment", given: "{spec: {price: null}}", accept: "'-28%'", refuse: "'-101%'"},
				{rule: "P_PRICEADJ", field: "spec.priceAdjustment", given: "{spec: {price: null}}", accept: "'+0.5'", refuse: "'0.5'"},
				{rule: "P_PRICEADJ", field: "spec.priceAdjustment", given: "{spec: {price: null}}", accept: "'-100%'", refuse: "'28%'"},
				{rule: "min", field: "spec.weight", accept: "1", refuse: "0"},
				{rule: "max", field: "spec.weight", accept: "10000", refuse: "10001"},
				{rule: "R_REQ_NOTIN", field: "spec.requirements", accept: "[{key: a, operator: NotIn, values: [b]}]", refuse: "[{key: a, operator: NotIn, values: []}]"},
				{rule: "A_KEY_OVERLAY", field: "spec.requirements[0].key", accept: "karpenter.k8s.aws/instance-family", refuse: "karpenter.k8s.aws/instance-tenancy"},
				// Overlays may be for some pools.
				{rule: "R_KEY_DOMAIN", field: "spec.requirements[0].key", accept: "karpenter.sh/nodepool", refuse: "karpenter.sh/nodeclaim"},
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
		rows: join(
			required("spec", "spec.scalableRef.kind", "spec.scalableRef.name", "status.podTemplateRef.name"),
			[]row{
				{rule: "R_CB_TMPL", field: "spec", given: "{spec: {scalableRef: null, replicas: null, limits: null}}", accept: "{podTemplateRef: {name: a}, replicas: 1}", refuse: "{podTemplateRef: {name: a}}", names: "podTemplateRef"},
				{rule: "R_CB_TMPL", field: "spec", given: "{spec: {scalableRef: null, replicas: null, limits: null}}", accept: "{podTemplateRef: {name: a}, limits: {cpu: '1'}}", refuse: "{podTemplateRef: {name: a}, percentage: 10}", names: "podTemplateRef"},
				{rule: "R_CB_ONE", field: "spec", accept: "{podTemplateRef: {name: a}, scalableRef: null}", refuse: "{podTemplateRef: {name: a}}", names: "scalableRef"},
				{rule: "required", field: "spec.podTemplateRef.name", given: "{spec: {scalableRef: null, podTemplateRef: {name: a}}}", refuse: absent},
				{rule: "minLength", field: "spec.podTemplateRef.name", given: "{spec: {scalableRef: null, podTemplateRef: {name: a}}}", accept: "a", refuse: `""`},
				{rule: "minLength", field: "spec.scalableRef.kind", accept: "StatefulSet", refuse: `""`},
				{rule: "minLength", field: "spec.scalableRef.name", accept: "a", refuse: `""`},
				{rule: "minLength", field: "status.podTemplateRef.name", accept: "a", refuse: `""`},
				{rule: "min", field: "spec.replicas", accept: "0", refuse: "-1"},
				{rule: "min", field: "spec.percentage", accept: "0", refuse: "-1"},
				{rule: "P_QTY", field: "spec.limits.cpu", accept: "500m", refuse: "half"},
			},
			conditions(), reasons(),
		),
	}
}
