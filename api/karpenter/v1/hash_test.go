package v1_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func replace(text string, oldnew ...string) string {
	return strings.NewReplacer(oldnew...).Replace(text)
}

func throughJSON(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func pool() *karpv1.NodePool {
	return &karpv1.NodePool{Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{
		ObjectMeta: karpv1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}},
		Spec: karpv1.NodeClaimTemplateSpec{
			Taints: []corev1.Taint{
				{Key: "a", Value: "1", Effect: corev1.TaintEffectNoSchedule},
				{Key: "b", Effect: corev1.TaintEffectNoExecute},
			},
			StartupTaints:          []corev1.Taint{{Key: "c", Effect: corev1.TaintEffectNoExecute}},
			Requirements:           []karpv1.Requirement{{Key: "x", Operator: corev1.NodeSelectorOpExists}},
			NodeClassRef:           karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
			TerminationGracePeriod: &metav1.Duration{Duration: time.Hour},
			ExpireAfter:            karpv1.After(time.Hour),
		},
	}}}
}

func hash(t *testing.T, p *karpv1.NodePool) string {
	t.Helper()
	sum, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Nodes outlive versions of the program: a hash that moved without its version would replace them all.
func TestHashIsStable(t *testing.T) {
	if got, want := hash(t, pool()), "871152822006265413"; got != want {
		t.Errorf("hash = %s, want %s: a change of the hash needs a new NodePoolHashVersion", got, want)
	}
	if got, want := hash(t, &karpv1.NodePool{}), "17307646073972311821"; got != want {
		t.Errorf("hash of nothing = %s, want %s: a change of the hash needs a new NodePoolHashVersion", got, want)
	}
}

func TestHash(t *testing.T) {
	weight, replicas := int32(5), int64(3)
	tests := []struct {
		name    string
		change  func(*karpv1.NodePool)
		changes bool
	}{
		{"label", func(p *karpv1.NodePool) { p.Spec.Template.Labels["team"] = "b" }, true},
		{"annotation", func(p *karpv1.NodePool) { p.Spec.Template.Annotations["more"] = "" }, true},
		{"taint", func(p *karpv1.NodePool) { p.Spec.Template.Spec.Taints[0].Value = "2" }, true},
		{"startup taint", func(p *karpv1.NodePool) { p.Spec.Template.Spec.StartupTaints = nil }, true},
		{"taint moved to startup taints", func(p *karpv1.NodePool) {
			s := &p.Spec.Template.Spec
			s.Taints, s.StartupTaints = s.StartupTaints, s.Taints
		}, true},
		{"node class", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "other" }, true},
		{"grace period", func(p *karpv1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod.Duration = time.Minute }, true},
		{"grace period removed", func(p *karpv1.NodePool) { p.Spec.Template.Spec.TerminationGracePeriod = nil }, true},
		{"expiry", func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter = karpv1.After(2 * time.Hour) }, true},
		{"expiry to never", func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter = karpv1.Never() }, true},
		{"expiry to zero", func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter = karpv1.After(0) }, true},

		{"spelling of the expiry", func(p *karpv1.NodePool) { p.Spec.Template.Spec.ExpireAfter.Spelling = "60m" }, false},
		{"order of taints", func(p *karpv1.NodePool) {
			taints := p.Spec.Template.Spec.Taints
			taints[0], taints[1] = taints[1], taints[0]
		}, false},
		{"requirements", func(p *karpv1.NodePool) { p.Spec.Template.Spec.Requirements = nil }, false},
		{"disruption", func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.Never() }, false},
		{"limits", func(p *karpv1.NodePool) { p.Spec.Limits = corev1.ResourceList{} }, false},
		{"weight", func(p *karpv1.NodePool) { p.Spec.Weight = &weight }, false},
		{"replicas", func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas }, false},
		{"the pool's own labels", func(p *karpv1.NodePool) { p.Labels = map[string]string{"a": "b"} }, false},
		{"status", func(p *karpv1.NodePool) { p.Status.NodeClassObservedGeneration = 4 }, false},
	}
	before := hash(t, pool())
	for _, tt := range tests {
		rule := "drift: "
		if !tt.changes {
			rule = "no drift: "
		}
		t.Run(rule+tt.name, func(t *testing.T) {
			p := pool()
			tt.change(p)
			if changed := hash(t, p) != before; changed != tt.changes {
				t.Errorf("hash changes: %v, want %v", changed, tt.changes)
			}
		})
	}
	never, zero := pool(), pool()
	never.Spec.Template.Spec.ExpireAfter, zero.Spec.Template.Spec.ExpireAfter = karpv1.Never(), karpv1.After(0)
	if hash(t, never) == hash(t, zero) {
		t.Error("Never and 0s have one hash")
	}
}
