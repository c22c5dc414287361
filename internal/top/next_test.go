package top

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// moving is a small cluster that changes: two nodes that are up, and a pending pod.
type moving struct {
	Objects
	forecast *Forecast
}

func newMoving() *moving {
	m := &moving{}
	m.Now = now
	m.Prices = sampleObjects().Prices
	m.up("n1")
	m.up("n2")
	m.Pods = append(m.Pods, samplePod("web-1", "", 1000, 1<<30))
	m.forecast = &Forecast{
		At: now.Add(-10 * time.Second), removals: map[string]int{"n1": 1}, stays: map[string]stay{}, pods: map[types.UID]Outlook{},
		Changes: []Change{
			{
				Action: "launch", Reason: "pending pods", Nodes: []string{}, Pods: 1, HourlySavings: -0.1, pods: []types.UID{m.Pods[0].UID},
				Launches: []Launch{{NodePool: "general", InstanceType: "c7i.xlarge", HourlyCost: 0.1}},
			},
			{Action: "remove", Reason: "underutilized", Nodes: []string{"n1"}, Launches: []Launch{}, HourlySavings: 0.2},
		},
	}
	return m
}

func (m *moving) up(name string) (*corev1.Node, *karpv1.NodeClaim) {
	labels := map[string]string{karpv1.LabelNodePool: "general", karpv1.LabelInitialized: "true", corev1.LabelInstanceTypeStable: "c7i.xlarge"}
	created := metav1.NewTime(now.Add(-time.Hour))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: created}}
	node.Spec.ProviderID = "aws:///z/" + name
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	claim := m.claim("claim-"+name, created.Time)
	claim.Status.ProviderID = node.Spec.ProviderID
	m.Nodes = append(m.Nodes, node)
	return node, claim
}

func (m *moving) claim(name string, created time.Time) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{},
		Labels: map[string]string{karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: "c7i.xlarge"},
	}}
	m.Claims = append(m.Claims, claim)
	return claim
}

// next returns what the page and the screen list, as "ACTION what" with its progress.
func (m *moving) next() (out []string, after float64) {
	report := NewReport(Observed{Fleet: Observe(m.Objects)}, m.forecast)
	for _, c := range report.Changes {
		text := c.Action
		for _, n := range c.Nodes {
			text += " " + n
		}
		if c.Progress != "" {
			text += " (begun)"
		}
		out = append(out, text)
	}
	return out, *report.Spend.PlannedHourlyCost - report.Spend.HourlyCost
}

func TestChangesThatHaveBegunAreListedOnceAsSuch(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(m *moving)
		want   []string
	}{
		{"nothing has begun", func(*moving) {}, []string{"launch", "remove n1"}},
		{"the node for the pod is launched", func(m *moving) {
			m.claim("new", now).Annotations[karpv1.AnnotationNominatedPods] = string(m.Pods[0].UID)
		}, []string{"launch (begun)", "remove n1"}},
		{"Karpenter launches the node for the pod, which lists no pods", func(m *moving) {
			m.claim("new", now)
		}, []string{"launch (begun)", "remove n1"}},
		{"kube-scheduler has found a node for the pod", func(m *moving) {
			m.Pods[0].Spec.NodeName = "n2"
		}, []string{"remove n1"}},
		{"the pod is gone", func(m *moving) { m.Pods = nil }, []string{"remove n1"}},
		{"the node is being removed", func(m *moving) {
			m.Nodes[0].DeletionTimestamp = &metav1.Time{Time: now}
		}, []string{"remove n1 (begun)", "launch"}},
		{"the node is gone", func(m *moving) {
			m.Nodes, m.Claims = m.Nodes[1:], m.Claims[1:]
		}, []string{"launch"}},
		{"a drift rollout replaces a node that the plan keeps", func(m *moving) {
			command := &karpv1.DisruptionCommand{
				ID: "d-1", Reason: karpv1.DisruptionDrifted, Candidates: []string{"claim-n2"}, Replacements: []string{"new"},
			}
			if err := m.Claims[1].SetDisruptionCommand(command); err != nil {
				t.Fatal(err)
			}
			m.claim("new", now).Annotations[karpv1.AnnotationReplaces] = "claim-n2"
		}, []string{"replace n2 (begun)", "launch", "remove n1"}},
		{"Karpenter replaces a node: only its taint shows it", func(m *moving) {
			m.Nodes[1].Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()}
		}, []string{"remove n2 (begun)", "launch", "remove n1"}},
	} {
		m := newMoving()
		tc.change(m)
		if got, _ := m.next(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A launch that has happened costs once: its node is among those of now.
func TestCostAfterChangesCountsWhatHasHappenedOnce(t *testing.T) {
	m := newMoving()
	if _, after := m.next(); after > -0.09 || after < -0.11 {
		t.Errorf("the changes cost $%.2f/h more, want $-0.10", after)
	}
	m.claim("new", now).Annotations[karpv1.AnnotationNominatedPods] = string(m.Pods[0].UID)
	if _, after := m.next(); after > -0.19 || after < -0.21 {
		t.Errorf("once the node is launched, the changes cost $%.2f/h more, want $-0.20", after)
	}
}

// A pod that kube-scheduler or the next plan has yet to decide on needs no change.
func TestPodThatNobodyHasDecidedOnNeedsNoChange(t *testing.T) {
	m := newMoving()
	m.forecast.pods[m.Pods[0].UID] = Outlook{Reasons: []string{"NodePool general: it requires another zone"}}
	m.Pods = append(m.Pods, samplePod("web-2", "", 1000, 1<<30))
	for _, forecast := range []*Forecast{m.forecast, nil} {
		for _, p := range NewReport(Observed{Fleet: Observe(m.Objects)}, forecast).Pending {
			if want := forecast == nil || p.Name == "web-2"; p.Waits != want || p.Fits {
				t.Errorf("with a forecast: %t: %s waits: %t, fits: %t", forecast != nil, p.Name, p.Waits, p.Fits)
			}
		}
	}
}

// A node that stays is counted by its reason as long as it is there, whatever names the reason has.
func TestNodesThatStayAreCountedByReason(t *testing.T) {
	m := newMoving()
	m.up("n3")
	m.up("n4")
	m.forecast.stays = map[string]stay{
		"n1": {summary: "goes"}, "n2": {summary: "pdb prevents pod evictions"}, "n3": {summary: "Can't replace with a cheaper node"},
		"n4": {summary: "Can't replace with a cheaper node"}, "gone": {summary: "pdb prevents pod evictions"},
	}
	kept := func() []Kept { return NewReport(Observed{Fleet: Observe(m.Objects)}, m.forecast).Kept }
	want := []Kept{{"Can't replace with a cheaper node", 2}, {"pdb prevents pod evictions", 1}}
	if got := kept(); !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	m.Claims[3].DeletionTimestamp = &metav1.Time{Time: now}
	want[0].Nodes = 1
	if got := kept(); !slices.Equal(got, want) {
		t.Errorf("while one leaves, kept %v, want %v", got, want)
	}
	m.forecast = nil
	if got := kept(); got == nil || len(got) > 0 {
		t.Errorf("before a forecast, kept %v", got)
	}
}
