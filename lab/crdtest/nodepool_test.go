package crdtest

func nodePool() kind {
	const (
		template = "spec.template.spec"
		labels   = "spec.template.metadata.labels"
		budget   = "spec.disruption.budgets[0]"
		// A pool with replicas must do without these.
		static = "{spec: {weight: null, limits: {cpu: null}}}"
	)
	return kind{
		resource: "nodepools", crd: "karpenter.sh_nodepools.yaml",
		minimal: `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: minimal}
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
`,
		defaulted: `
spec:
  disruption:
    budgets: [{nodes: 10%}]
    consolidateAfter: 0s
    consolidationPolicy: WhenEmptyOrUnderutilized
  template:
    spec:
      expireAfter: 720h
      requirements: []
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
`,
		full: `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: full}
spec:
  weight: 10
  limits: {cpu: "10"}
  disruption:
    consolidateAfter: 5m
    consolidationPolicy: WhenEmpty
    budgets: [{nodes: "10%", reasons: [Empty], schedule: "@daily", duration: 1h}]
  template:
    metadata:
      labels: {team: a}
      annotations: {note: b}
    spec:
      requirements: [{key: kubernetes.io/arch, operator: NotIn, values: [amd64], minValues: 1}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      taints: [{key: a, value: b, effect: NoSchedule, timeAdded: "2026-01-02T03:04:05Z"}]
      startupTaints: [{key: c, value: d, effect: NoSchedule, timeAdded: "2026-01-02T03:04:05Z"}]
      terminationGracePeriod: 1h
      expireAfter: 720h
status:
  nodes: 1
  nodeClassObservedGeneration: 1
  resources: {cpu: "1"}
  disruption: {allowed: "1", budgets: [{reason: Empty, nodes: 1}], disrupted: 0, drifted: 0, nodes: 1}
  conditions: [{type: A, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}]
`,
		examples: join(
			required("spec", "spec.template", template, template+".requirements"),
			[]ruleExample{
				{
					rule:         "R_STATIC_MODE",
					field:        "spec",
					update:       true,
					accept:       `{limits: {cpu: "11"}}`,
					reject:       "{replicas: 1}",
					given:        static,
					messageNames: "replicas",
				},
				{
					rule:         "R_STATIC_LIM",
					field:        "spec",
					given:        static,
					accept:       `{replicas: 1, limits: {nodes: "5"}}`,
					reject:       `{replicas: 1, limits: {cpu: "5"}}`,
					messageNames: "limits",
				},
				{
					rule:         "R_STATIC_LIM",
					field:        "spec",
					given:        static,
					accept:       `{replicas: 0, limits: {}}`,
					reject:       `{replicas: 1, limits: {nodes: "5", cpu: "5"}}`,
					messageNames: "limits",
				},
				{
					rule:         "R_STATIC_WGT",
					field:        "spec",
					given:        static,
					accept:       "{replicas: 1}",
					reject:       "{replicas: 1, weight: 1}",
					messageNames: "weight",
				},

				{rule: "min", field: "spec.replicas", given: static, accept: "0", reject: "-1"},
				{rule: "min", field: "spec.weight", accept: "1", reject: "0"},
				{rule: "max", field: "spec.weight", accept: "100", reject: "101"},
				{rule: "P_QTY", field: "spec.limits.cpu", accept: "1500m", reject: "1.5 cores"},
				{rule: "P_QTY", field: "spec.limits.memory", accept: "1e3", reject: "10GB"},

				{rule: "maxProperties", field: labels, accept: object(99), reject: object(100)},
				{rule: "maxLength", field: labels + ".team", accept: quoted(63), reject: quoted(64)},
				{rule: "P_LABELVAL", field: labels + ".team", accept: `""`, reject: "a b"},
				{rule: "R_LBL_DOMAIN", field: labels, accept: "{karpenter.sh/capacity-type: spot}", reject: "{karpenter.sh/initialized: 'true'}"},
				{rule: "R_LBL_POOL", field: labels, accept: "{example.com/nodepool: a}", reject: "{karpenter.sh/nodepool: a}"},
				{rule: "R_LBL_HOST", field: labels, accept: "{kubernetes.io/os: linux}", reject: "{kubernetes.io/hostname: a}"},
				{
					rule:   "A_LBL",
					field:  labels,
					accept: "{karpenter.k8s.aws/instance-category: m}",
					reject: "{karpenter.k8s.aws/instance-pods: '1'}",
				},

				{
					rule:         "R_REF_GROUP",
					field:        template + ".nodeClassRef",
					update:       true,
					accept:       "{name: other}",
					reject:       "{group: example.com}",
					messageNames: "group",
				},
				{
					rule:         "R_REF_KIND",
					field:        template + ".nodeClassRef",
					update:       true,
					accept:       "{name: other}",
					reject:       "{kind: Other}",
					messageNames: "kind",
				},
				{
					rule:   "R_KEY_POOL",
					field:  template + ".requirements[0].key",
					accept: "karpenter.sh/capacity-type",
					reject: "karpenter.sh/nodepool",
				},
				{
					rule:   "A_KEY",
					field:  template + ".requirements[0].key",
					accept: "karpenter.k8s.aws/instance-tenancy",
					reject: "karpenter.k8s.aws/instance-pods",
				},

				{rule: "P_DUR", field: template + ".terminationGracePeriod", accept: "1h30m", reject: "Never"},
				{rule: "P_DURNEVER", field: template + ".expireAfter", accept: "Never", reject: "30d"},
				{rule: "P_DURNEVER", field: "spec.disruption.consolidateAfter", accept: "Never", reject: "1.5h"},
				{rule: "enum", field: "spec.disruption.consolidationPolicy", accept: "Balanced", reject: "Never"},

				{rule: "maxItems", field: "spec.disruption.budgets", accept: list(50, "{nodes: '1'}"), reject: list(51, "{nodes: '1'}")},
				{
					rule:   "R_BUDGETS",
					field:  "spec.disruption.budgets",
					accept: "[{nodes: '1', schedule: '@daily', duration: 1h}]",
					reject: "[{nodes: '1', schedule: '@daily'}]",
				},
				{rule: "R_BUDGETS", field: "spec.disruption.budgets", accept: "[]", reject: "[{nodes: '1', duration: 1h}]"},
				{rule: "P_BUDGETN", field: budget + ".nodes", accept: "100%", reject: "101%"},
				{rule: "P_BUDGETN", field: budget + ".nodes", accept: "'0'", reject: "'-1'"},
				{rule: "P_CRON", field: budget + ".schedule", accept: "0 6 * * 1-5", reject: "0 6 * *"},
				{rule: "P_CRON", field: budget + ".schedule", accept: "'@weekly'", reject: "'@fortnightly'"},
				{rule: "P_BUDGETDUR", field: budget + ".duration", accept: "12h30m", reject: "90s"},
				{rule: "P_BUDGETDUR", field: budget + ".duration", accept: "30m0s", reject: "1d"},
				{rule: "enum", field: budget + ".reasons[0]", accept: "Drifted", reject: "Expired"},
				{rule: "enum", field: budget + ".reasons[0]", accept: "Unhealthy", reject: "unhealthy"},
				{rule: "unique", field: budget + ".reasons", accept: "[Empty, Underutilized]", reject: "[Empty, Empty]"},
				{rule: "maxItems", field: budget + ".reasons", accept: "[Empty, Drifted]", reject: list(51, "Empty")},

				{rule: "P_QTY", field: "status.resources.cpu", accept: "3", reject: "three"},
				{rule: "required", field: "status.disruption.budgets[0].reason", reject: absent},
				{rule: "enum", field: "status.disruption.budgets[0].reason", accept: "Unhealthy", reject: "Expired"},
			},
			requirementItem(
				template+".requirements",
			),
			requirementList(template+".requirements"),
			minValues(template+".requirements"),
			requirementValues(template+".requirements"),
			nodeClassRef(template+".nodeClassRef"),
			taints(template+".taints"),
			taints(template+".startupTaints"),
			conditions(),
			reasons(),
		),
	}
}
