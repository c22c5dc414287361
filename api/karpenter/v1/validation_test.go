package v1_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func requirement(key string, op corev1.NodeSelectorOperator, values ...string) karpv1.Requirement {
	return karpv1.Requirement{Key: key, Operator: op, Values: values}
}

func atLeast(n int, r karpv1.Requirement) karpv1.Requirement {
	r.MinValues = &n
	return r
}

func TestRuntimeValidate(t *testing.T) {
	const (
		in   = corev1.NodeSelectorOpIn
		path = "spec.template.spec."
	)
	require := func(r karpv1.Requirement) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Spec.Template.Spec.Requirements = []karpv1.Requirement{r} }
	}
	label := func(key, value string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Spec.Template.Labels = map[string]string{key: value} }
	}
	taint := func(taints ...corev1.Taint) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Spec.Template.Spec.Taints = taints }
	}
	tests := []struct {
		name   string
		change func(*karpv1.NodePool)
		// names is the field that the error must name; empty if the pool is valid.
		names string
	}{
		{"as it is", func(*karpv1.NodePool) {}, ""},

		{"label", label("example.com/team", "a"), ""},
		{"well-known label", label(corev1.LabelTopologyZone, "us-east-1a"), ""},
		{"well-known label of EC2", label(awsv1.LabelInstanceCategory, "m"), ""},
		{"label of the pool", label(karpv1.LabelNodePool, "a"), "spec.template.metadata.labels[karpenter.sh/nodepool]"},
		{"label key not qualified", label("a/b/c", "a"), "spec.template.metadata.labels[a/b/c]"},
		{"label value", label("team", "a b"), "spec.template.metadata.labels[team]"},
		{"label of the core's domain", label("karpenter.sh/custom", "a"), "spec.template.metadata.labels[karpenter.sh/custom]"},
		{"label of a domain that only ends alike", label("my-karpenter.sh/custom", "a"), ""},
		{"label of a subdomain", label("a.karpenter.k8s.aws/b", "a"), "spec.template.metadata.labels[a.karpenter.k8s.aws/b]"},
		{"label of the node class", label(awsv1.LabelNodeClass, "a"), "spec.template.metadata.labels[karpenter.k8s.aws/ec2nodeclass]"},
		{"label of the host", label(corev1.LabelHostname, "a"), "spec.template.metadata.labels[kubernetes.io/hostname]"},

		{"taint", taint(corev1.Taint{Key: "example.com/a", Value: "b", Effect: corev1.TaintEffectNoSchedule}), ""},
		{"taint of every effect", taint(corev1.Taint{Key: "a"}), ""},
		{"taint without key", taint(corev1.Taint{Effect: corev1.TaintEffectNoSchedule}), path + "taints[0].key"},
		{"taint key", taint(corev1.Taint{Key: "a b"}), path + "taints[0].key"},
		{"taint value", taint(corev1.Taint{Key: "a", Value: "b c"}), path + "taints[0].value"},
		{"taint effect", taint(corev1.Taint{Key: "a", Effect: "Never"}), path + "taints[0].effect"},
		{"same key, other effect", taint(corev1.Taint{Key: "a", Effect: "NoExecute"}, corev1.Taint{Key: "a", Effect: "NoSchedule"}), ""},
		{
			"same key and effect, other value",
			taint(corev1.Taint{Key: "a", Value: "b", Effect: "NoExecute"}, corev1.Taint{Key: "a", Value: "c", Effect: "NoExecute"}),
			path + "taints[1]",
		},
		{"taint that is a startup taint, too", func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.StartupTaints = p.Spec.Template.Spec.Taints
		}, path + "startupTaints[0]"},

		{"requirement", require(requirement("example.com/a", in, "b")), ""},
		{"requirement on a well-known label", require(requirement(awsv1.LabelZoneID, in, "use1-az1")), ""},
		{"requirement in an old spelling", require(requirement("beta.kubernetes.io/arch", in, "amd64")), ""},
		{"requirement on the pool", require(requirement(karpv1.LabelNodePool, in, "a")), path + "requirements[0].key"},
		{"requirement key", require(requirement("a b", in, "b")), path + "requirements[0].key"},
		{"requirement on a restricted label", require(requirement(karpv1.LabelRegistered, in, "true")), path + "requirements[0].key"},
		{"requirement on the node class", require(requirement(awsv1.LabelNodeClass, in, "a")), path + "requirements[0].key"},
		{"requirement on the host", require(requirement(corev1.LabelHostname, in, "a")), path + "requirements[0].key"},
		{"requirement value", require(requirement("a", in, "b", "c d")), path + "requirements[0].values[1]"},
		{"operator", require(requirement("a", "Like", "b")), path + "requirements[0].operator"},
		{"In without values", require(requirement("a", in)), path + "requirements[0].values"},
		{"NotIn without values", require(requirement("a", corev1.NodeSelectorOpNotIn)), ""},
		{"fewer values than minValues", require(atLeast(2, requirement("a", in, "b"))), path + "requirements[0].values"},
		{"as many values as minValues", require(atLeast(2, requirement("a", in, "b", "c"))), ""},
		{"Gt", require(requirement(awsv1.LabelInstanceCPU, corev1.NodeSelectorOpGt, "4")), ""},
		{"Gte zero", require(requirement(awsv1.LabelInstanceCPU, karpv1.OperatorGte, "0")), ""},
		{"Lt of two", require(requirement(awsv1.LabelInstanceCPU, corev1.NodeSelectorOpLt, "4", "5")), path + "requirements[0].values"},
		{"Lte of nothing", require(requirement(awsv1.LabelInstanceCPU, karpv1.OperatorLte)), path + "requirements[0].values"},
		{"Gt of no number", require(requirement(awsv1.LabelInstanceCPU, corev1.NodeSelectorOpGt, "many")), path + "requirements[0].values"},
		{"Gte of a negative number", require(requirement(awsv1.LabelInstanceCPU, karpv1.OperatorGte, "-1")), path + "requirements[0].values"},

		{"known capacity type", require(requirement(karpv1.LabelCapacityType, in, "spot")), ""},
		{"unknown capacity type beside a known one", require(requirement(karpv1.LabelCapacityType, in, "spot", "borrowed")), ""},
		{"unknown capacity type", require(requirement(karpv1.LabelCapacityType, in, "borrowed")), path + "requirements[0].values"},
		{
			"fewer known capacity types than minValues",
			require(atLeast(2, requirement(karpv1.LabelCapacityType, in, "spot", "borrowed"))),
			path + "requirements[0].values",
		},
		{"unknown tenancy", require(requirement(awsv1.LabelInstanceTenancy, in, "host")), path + "requirements[0].values"},
		{"unknown capacity type excluded", require(requirement(karpv1.LabelCapacityType, corev1.NodeSelectorOpNotIn, "borrowed")), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pool()
			tt.change(p)
			err := p.RuntimeValidate(awsv1.Vocabulary())
			if tt.names == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.names+":") {
				t.Errorf("the message does not name %s: %v", tt.names, err)
			}
		})
	}
}

func TestEveryFieldAtFaultIsNamed(t *testing.T) {
	p := pool()
	p.Spec.Template.Labels = map[string]string{"z": "?", "a": "?"}
	p.Spec.Template.Spec.Requirements = []karpv1.Requirement{requirement("b c", "Like")}
	const want = `[spec.template.metadata.labels[a]: Invalid value: "?": a valid label must be`
	err := p.RuntimeValidate(karpv1.CoreVocabulary())
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want it to begin with %s", err, want)
	}
	for _, field := range []string{"labels[z]", "requirements[0].key", "requirements[0].operator"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

func TestVocabulary(t *testing.T) {
	v := awsv1.Vocabulary()
	for spelling, want := range map[string]string{
		"failure-domain.beta.kubernetes.io/zone":   corev1.LabelTopologyZone,
		"failure-domain.beta.kubernetes.io/region": corev1.LabelTopologyRegion,
		"beta.kubernetes.io/arch":                  corev1.LabelArchStable,
		"beta.kubernetes.io/os":                    corev1.LabelOSStable,
		"beta.kubernetes.io/instance-type":         corev1.LabelInstanceTypeStable,
		"topology.ebs.csi.aws.com/zone":            corev1.LabelTopologyZone,
		"example.com/a":                            "example.com/a",
	} {
		if got := v.Normalize(spelling); got != want {
			t.Errorf("%s is treated as %s, want %s", spelling, got, want)
		}
	}
	for key, want := range map[string]bool{
		"topology.kubernetes.io/zone":            true,
		"topology.k8s.aws/zone-id":               true,
		"karpenter.k8s.aws/instance-tenancy":     true,
		"karpenter.k8s.aws/placement-group-id":   true,
		"karpenter.k8s.aws/ec2nodeclass":         false,
		"karpenter.sh/nodepool":                  true,
		"karpenter.sh/registered":                false,
		"kubernetes.io/hostname":                 false,
		"node.kubernetes.io/windows-build":       true,
		"topology.ebs.csi.aws.com/zone":          false,
		"karpenter.k8s.aws/instance-pods":        false,
		"failure-domain.beta.kubernetes.io/zone": false,
	} {
		if got := v.IsWellKnown(key); got != want {
			t.Errorf("%s well-known: %v, want %v", key, got, want)
		}
	}
	if core := karpv1.CoreVocabulary(); core.IsWellKnown(awsv1.LabelInstanceCPU) || core.IsRestricted("karpenter.k8s.aws/x") {
		t.Error("the core knows about EC2")
	}
	v.WellKnown["mine"] = true
	if awsv1.Vocabulary().IsWellKnown("mine") {
		t.Error("what one holder does to a vocabulary, others see")
	}
}
