package provisioning

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// The events of a pass.
func TestEvents(t *testing.T) {
	s390x := func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"s390x"}},
		}
	}
	by := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: "x"} }
	}
	optsOut := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: karpv1.LabelNodePool, Operator: corev1.NodeSelectorOpDoesNotExist}}},
				},
			}},
		}
	}
	team := func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: "example.com/team", Operator: corev1.NodeSelectorOpExists}}
	}
	prefers := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 1,
				Preference: corev1.NodeSelectorTerm{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: "example.com/team", Operator: corev1.NodeSelectorOpIn, Values: []string{"team a"}},
					},
				},
			}}},
		}
	}
	for _, c := range []struct {
		name string
		pool func(*karpv1.NodePool)
		pod  func(*corev1.Pod)
		want []string // prefixes of the events
	}{
		{"a place", func(*karpv1.NodePool) {}, func(*corev1.Pod) {}, []string{"Normal Nominated Pod should schedule on: nodeclaim/general-"}},
		{
			"a host name", func(*karpv1.NodePool) {}, by(corev1.LabelHostname),
			[]string{`Warning FailedScheduling Failed to schedule pod, nodepool "general": fits m.small in z1, but the pod requires kubernetes.io/hostname=x, and a new node has a name of its own`},
		},
		{
			"a label of ours", func(*karpv1.NodePool) {}, by("sub.karpenter.sh/x"),
			[]string{`Warning FailedScheduling Failed to schedule pod, nodepool "general": fits m.small in z1, but the pod requires sub.karpenter.sh/x=x, a label that neither the pool nor its instance types have`},
		},
		{"it wants no node of ours", func(*karpv1.NodePool) {}, optsOut, nil},
		{"an invalid preference", team, prefers, []string{
			"Normal Nominated Pod should schedule on: nodeclaim/general-",
			`Warning InvalidNodeAffinity Terms of the pod's node affinity are ignored; correct or remove them: preferred node affinity term 0: label "example.com/team": no node can have the value "team a"`,
		}},
		{"a pool without types", s390x, func(*corev1.Pod) {}, []string{
			"Warning FailedScheduling Failed to schedule pod, ",
			"Warning NoCompatibleInstanceTypes The pool can launch nothing: its own requirements filtered out all instance types: ",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", c.pool), pending("a", c.pod))
			p := provisioner(f)
			run(t, p)
			said := f.RecordedEvents()
			slices.Sort(said)
			if len(said) != len(c.want) {
				t.Fatalf("said %q, want %q", said, c.want)
			}
			for i := range said {
				if !strings.HasPrefix(said[i], c.want[i]) {
					t.Errorf("said %q, want %q", said[i], c.want[i])
				}
			}
		})
	}
}

// The claim and the metric show whether minValues were relaxed.
func TestRelaxedMinValuesAreRecorded(t *testing.T) {
	for value, relaxed := range map[string]bool{"true": true, "false": false} {
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
		p := provisioner(f)
		s, err := p.State.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		plan := schedule.Solve(s, schedule.Budget{})
		plan.Launches[0].MinValuesRelaxed = relaxed
		if _, err := p.launch(t.Context(), plan.Launches, s); err != nil {
			t.Fatal(err)
		}
		if got := claims(t, f.API)[0].Annotations[karpv1.AnnotationMinValuesRelaxed]; got != value {
			t.Errorf("annotation %q, want %s", got, value)
		}
		if got := testutil.ToFloat64(f.Metrics.ClaimsCreated.WithLabelValues("provisioned", "general", value)); got != 1 {
			t.Errorf("%v claims counted as relaxed %s", got, value)
		}
	}
}
