package breaker

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rollout"
)

// classOf is a class that uses an image, with ami-good known to be good for pools a and b.
func classOf(t *testing.T, image string) *awsv1.EC2NodeClass {
	t.Helper()
	class := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{
		Name: "default", Generation: 3, Annotations: map[string]string{awsv1.AnnotationNodeClassHash: "class"},
	}}
	class.Status.AMIs = []awsv1.AMI{{ID: image}}
	_, err := class.Annotate(awsv1.AnnotationKnownGood, awsv1.KnownGood{
		AMIs: []awsv1.AMI{{ID: "ami-good"}}, Hash: "class", Pools: map[string]string{"a": "template", "b": "template"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return class
}

func poolHistory(name string, change ...func(*PoolHistory)) PoolHistory {
	out := PoolHistory{Pool: &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{karpv1.AnnotationNodePoolHash: "template"},
	}}}
	out.FirstFault = true
	for _, c := range change {
		c(&out)
	}
	return out
}

// fails has canaries with ami-bad become what verdictsOf describes, while a roll-out is under way.
func fails(outcomes string) func(*PoolHistory) {
	return func(p *PoolHistory) {
		p.Rollout = &rollout.State{Images: []string{"ami-bad"}, Canaries: 3, Nodes: 20}
		p.AddVerdicts(verdictsOf(outcomes), 2)
	}
}

func survives(p *PoolHistory) {
	p.Rollout = &rollout.State{Images: []string{"ami-bad"}, Canaries: 1, Nodes: 20, Survived: 1}
}

func TestRollbackOf(t *testing.T) {
	other := func(p *PoolHistory) { p.Pool.Annotations[karpv1.AnnotationNodePoolHash] = "other" }
	good := func(p *PoolHistory) { p.Good = &Good{Images: []string{"ami-bad"}, Pool: "template", Class: "class"} }
	for _, tt := range []struct {
		name   string
		pools  []PoolHistory
		rolls  bool
		reason string
	}{
		{"nothing fails", []PoolHistory{poolHistory("a"), poolHistory("b", survives)}, false, ""},
		{"the first canary fails", []PoolHistory{poolHistory("a", fails("x"))}, true, ""},
		{"two of three fail", []PoolHistory{poolHistory("a", fails("xox"))}, true, ""},
		{"as many survive as fail", []PoolHistory{poolHistory("a", fails("xo"))}, false, "SomeNodesSurvive"},
		{"the images soak in another pool", []PoolHistory{poolHistory("a", fails("x")), poolHistory("b", fails("."))}, true, ""},
		{"the images work in another pool", []PoolHistory{poolHistory("a", fails("x")), poolHistory("b", survives)}, false, "WorksElsewhere"},
		{"another pool is done with them", []PoolHistory{poolHistory("b", fails("x")), poolHistory("a", good)}, false, "WorksElsewhere"},
		{"the template has changed, too", []PoolHistory{poolHistory("a", fails("x"), other)}, false, "TemplateChanged"},
		{"a pool that is not known", []PoolHistory{poolHistory("c", fails("x"))}, false, "TemplateChanged"},
	} {
		got := RollbackOf(classOf(t, "ami-bad"), tt.pools, at(9))
		if (got.Rollback != nil) != tt.rolls || got.Reason != tt.reason || got.Rolled || got.Good != nil {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if tt.rolls && (got.Rollback.From[0] != "ami-bad" || got.Rollback.Generation != 3 || got.Rollback.NodePool != "a") {
			t.Errorf("%s: %+v", tt.name, got.Rollback)
		}
	}
}

// An edit of one pool's budgets, which resets its history, takes no pool off the record.
func TestWhatIsKnownToBeGood(t *testing.T) {
	good := func(template string) func(*PoolHistory) {
		return func(p *PoolHistory) { p.Good = &Good{Images: []string{"ami-good"}, Pool: template, Class: "class"} }
	}
	for _, tt := range []struct {
		name  string
		pools []PoolHistory
		want  map[string]string // nil for no change
	}{
		{"all as recorded", []PoolHistory{poolHistory("a", good("template")), poolHistory("b", good("template"))}, nil},
		{"one has lost its history", []PoolHistory{poolHistory("a"), poolHistory("b", good("template"))}, nil},
		{"a new template", []PoolHistory{poolHistory("a", good("new")), poolHistory("b")}, map[string]string{"a": "new", "b": "template"}},
		{"a new pool", []PoolHistory{poolHistory("a"), poolHistory("b"), poolHistory("c", good("c"))}, map[string]string{"a": "template", "b": "template", "c": "c"}},
		{"a pool is gone", []PoolHistory{poolHistory("b")}, map[string]string{"b": "template"}},
		{"while a roll-out is under way", []PoolHistory{poolHistory("a", good("new")), poolHistory("b", survives)}, nil},
	} {
		got := RollbackOf(classOf(t, "ami-good"), tt.pools, at(9)).Good
		if (got == nil) != (tt.want == nil) || got != nil && !maps.Equal(got.Pools, tt.want) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
