package poolreport_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

var now = time.Date(2026, 11, 23, 3, 12, 0, 0, time.UTC)

type fixed []*catalog.InstanceType

func (f fixed) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return f, nil }

// fleet is a pool of n nodes, each filled by one pod, without any annotation of Dovetail.
func fleet(n int) *manifest.ClusterState {
	s := &manifest.ClusterState{Now: now, NodeClasses: map[string]*awsv1.EC2NodeClass{"default": {ObjectMeta: metav1.ObjectMeta{Name: "default"}}}}
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	pool.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: "EC2NodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpv1.Requirement{
		{Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}},
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"m.xlarge"}},
	}
	pool.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Minute)
	pool.Spec.Limits = karpLimits("100")
	s.NodePools = []*karpv1.NodePool{pool}
	for i := range n {
		add(s, fmt.Sprintf("node-%02d", i))
	}
	return s
}

func karpLimits(cpu string) corev1.ResourceList { return enginetest.Resources("cpu", cpu) }

func add(s *manifest.ClusterState, name string) {
	labels := func() map[string]string {
		return map[string]string{
			karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: "m.large", corev1.LabelTopologyZone: "z1",
			karpv1.LabelCapacityType: karpv1.CapacityTypeOnDemand, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		}
	}
	created := metav1.NewTime(now.Add(-24 * time.Hour))
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, UID: types.UID(name), Labels: labels(), CreationTimestamp: created}}
	claim.Spec.NodeClassRef = s.NodePools[0].Spec.Template.Spec.NodeClassRef
	claim.Status.ProviderID, claim.Status.NodeName = "aws:///z1/"+name, name
	claim.Status.Capacity = enginetest.Resources("cpu", "4", "memory", "16Gi", "pods", "110")
	claim.Status.Allocatable = claim.Status.Capacity
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized, karpv1.ConditionConsolidatable} {
		condition.SetTrue(claim, typ, now.Add(-23*time.Hour))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(), CreationTimestamp: created}}
	node.Labels[karpv1.LabelRegistered], node.Labels[karpv1.LabelInitialized] = "true", "true"
	node.Spec.ProviderID = claim.Status.ProviderID
	node.Status.Capacity, node.Status.Allocatable = claim.Status.Capacity, claim.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	pod := enginetest.Bound(enginetest.Pod("web-"+name, enginetest.Requests("cpu", "3500m", "memory", "1Gi")), name)
	s.NodeClaims, s.Nodes, s.Pods = append(s.NodeClaims, claim), append(s.Nodes, node), append(s.Pods, pod)
}

func report(t testing.TB, s *manifest.ClusterState) *poolreport.Report {
	t.Helper()
	return searched(t, s, consolidate.Settings{})
}

// searched is the report with a limit of the search.
func searched(t testing.TB, s *manifest.ClusterState, search consolidate.Settings) *poolreport.Report {
	t.Helper()
	v := viewOf(t, s)
	v.Search = search
	r, err := poolreport.Of(v, "general")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func viewOf(t testing.TB, s *manifest.ClusterState) *inspect.View {
	t.Helper()
	v, err := inspect.Of(s, inspect.Config{Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
		return inspect.Prices{Catalog: fixed(enginetest.Types()), From: "the tests"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func text(t *testing.T, r *poolreport.Report, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Text(&b, width); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// oneLine is a text without its line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestReport(t *testing.T) {
	s := fleet(27)
	at := "0 22 * * *"
	s.NodePools[0].Spec.Disruption.Budgets = []karpv1.Budget{
		{Nodes: "10%"}, {Nodes: "0", Schedule: &at, Duration: &metav1.Duration{Duration: 8 * time.Hour}},
	}
	s.Nodes[0].Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()}
	s.Nodes[1].Status.Conditions[0].Status = corev1.ConditionFalse
	for _, c := range s.NodeClaims[2:5] {
		condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because(disrupt.NodePoolDrifted, ""), now.Add(-time.Hour))
	}
	s.NodePools[0].Spec.Template.Labels = map[string]string{"team": "a"}
	s.Pods[10].Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
	r := report(t, s)
	got := oneLine(text(t, r, 80))
	for _, want := range []string{
		"nodepool general has 27 nodes for $5.40/h: 2 disrupted now, 3 drifted",
		"limit of cpu: 108 of 100 used (108%)",
		"Empty, Underutilized, Drifted, Unhealthy: 22:00-06:00 UTC 0 nodes, otherwise 3 nodes (10% of 27)",
		"node-00: it is about to be removed", "node-01: it is not Ready",
		"3 nodes: NodePoolDrifted NodePool/general spec.template.metadata.labels[team]: none -> a node-02, node-03, node-04",
		"What it can launch: 3 of 4 instance types", "1 excluded by node.kubernetes.io/instance-type not in (m.xlarge)",
		"1 node: a pod has the annotation karpenter.sh/do-not-disrupt node-10",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, text(t, r, 80))
		}
	}
	if got := []poolreport.DisruptedState{r.Disrupted[0].State, r.Disrupted[1].State}; !slices.Equal(got,
		[]poolreport.DisruptedState{poolreport.Leaving, poolreport.NotReady}) {
		t.Errorf("the disrupted nodes are %v, want one that leaves and one that is not ready", got)
	}
	for _, line := range strings.Split(text(t, r, 80), "\n") {
		if len(line) > 80 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
}

// Every list of the JSON is there, even if it is empty, so that a reader needs no test for null.
func TestJSONHasNoNull(t *testing.T) {
	for _, n := range []int{0, 1} {
		data, err := json.Marshal(report(t, fleet(n)))
		if err != nil || strings.Contains(string(data), "null") {
			t.Errorf("%v: %s", err, data)
		}
	}
}

func TestOtherStates(t *testing.T) {
	for want, edit := range map[string]func(*manifest.ClusterState){
		"static: spec.replicas 2": func(s *manifest.ClusterState) { two := int64(2); s.NodePools[0].Spec.Replicas = &two },
		"A budget is invalid, so that none goes": func(s *manifest.ClusterState) {
			s.NodePools[0].Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "many"}}
		},
		"condition NodeClassReady is False: NodeClassNotFound": func(s *manifest.ClusterState) {
			condition.SetFalse(s.NodePools[0], karpv1.ConditionNodeClassReady, condition.Because("NodeClassNotFound", "no such class"), now)
		},
		"any number of nodes at all times": func(s *manifest.ClusterState) { s.NodePools[0].Spec.Disruption.Budgets = []karpv1.Budget{} },
		"What the next passes would remove node-00: Empty, saves $0.20/h": func(s *manifest.ClusterState) {
			s.Pods = s.Pods[1:]
		},
	} {
		s := fleet(2)
		edit(s)
		if got := oneLine(text(t, report(t, s), 0)); !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
}

func TestUnknownPool(t *testing.T) {
	v, err := inspect.Of(fleet(1), inspect.Config{Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
		return inspect.Prices{Catalog: fixed(nil)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := poolreport.Of(v, "nothing"); err == nil {
		t.Error("no error for a NodePool that does not exist")
	}
}

// A limited search reports it in the first line, and counts only what it has simulated; a full one simulates every drifted node.
func TestALimitedSearchSaysThatItStopped(t *testing.T) {
	s := fleet(60)
	s.NodePools[0].Spec.Limits = nil
	for _, c := range s.NodeClaims {
		condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", ""), now.Add(-time.Hour))
	}
	limited, full := searched(t, s, consolidate.Settings{MaxSteps: 1}), searched(t, s, consolidate.Settings{})
	if !limited.Stopped || len(limited.Going) != 50 || !strings.Contains(limited.Verdict, "50 to go in the next passes at least (--full searches on)") {
		t.Errorf("limited: %v, %d going: %s", limited.Stopped, len(limited.Going), limited.Verdict)
	}
	if len(limited.Stays) != 1 || !strings.Contains(limited.Stays[0].Message, "--full simulates the rest") || limited.Stays[0].Nodes != 10 {
		t.Errorf("limited: the others stay for %+v", limited.Stays)
	}
	if full.Stopped || len(full.Going) != 60 || strings.Contains(full.Verdict, "--full") {
		t.Errorf("full: %v, %d going: %s", full.Stopped, len(full.Going), full.Verdict)
	}
}
