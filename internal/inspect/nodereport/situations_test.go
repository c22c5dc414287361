package nodereport_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
)

// situation is a cluster with one planted cause.
type situation struct {
	name  string
	plant func(*world)
	state nodereport.State
	// says is in the first line.
	says string
	// fix is the change that the report proposes; with it the node goes. Nil where it proposes none.
	fix func(*world)
}

func situations() []situation {
	drifted := func(w *world, reason string) {
		condition.SetTrueWithReason(w.claim(), karpv1.ConditionDrifted, condition.Because(reason, reason), now.Add(-time.Hour))
	}
	noPods := func(w *world) { w.Pods = nil }
	starting := func(w *world) {
		delete(w.node().Labels, karpv1.LabelInitialized)
		condition.SetUnknown(w.claim(), karpv1.ConditionInitialized, condition.Because("AwaitingReconciliation", ""), now)
		w.Pods = nil
	}
	budget := func(nodes string, reasons ...karpv1.DisruptionReason) func(*world) {
		return func(w *world) { w.pool().Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: nodes, Reasons: reasons}} }
	}
	return []situation{
		{"underutilized", func(*world) {}, nodereport.Goes, "goes in the next pass: m.small at $0.05/h takes its place, which saves $0.15/h", nil},
		{
			"pdb", func(w *world) { w.addPDB("web") }, nodereport.Stays,
			"stays: the PodDisruptionBudget shop/web allows no disruption now (minAvailable 1, 1 of 1 pods healthy). Removing the node would save $0.15/h",
			func(w *world) { w.PDBs[0].Status.DisruptionsAllowed = 1 },
		},
		{
			"two pdbs", func(w *world) { w.addPDB("web"); w.addPDB("all") }, nodereport.Stays,
			"stays: the PodDisruptionBudgets shop/all and shop/web both select pod shop/web-1",
			func(w *world) { w.PDBs = w.PDBs[:1]; w.PDBs[0].Status.DisruptionsAllowed = 1 },
		},
		{
			"do-not-disrupt pod", func(w *world) { w.pod().Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} },
			nodereport.Stays, "stays: pod shop/web-1 has the annotation karpenter.sh/do-not-disrupt=true. Removing the node would save $0.15/h",
			func(w *world) { w.pod().Annotations = nil },
		},
		{
			"do-not-disrupt pod for a time", func(w *world) { w.pod().Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "2h"} },
			nodereport.Stays, "stays: pod shop/web-1 has the annotation karpenter.sh/do-not-disrupt=2h until 04:12 UTC",
			func(w *world) { w.pod().Annotations = nil },
		},
		{
			"do-not-disrupt node", func(w *world) { w.node().Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} },
			nodereport.Stays, "stays: the node has the annotation karpenter.sh/do-not-disrupt=true. Removing the node would save $0.15/h",
			func(w *world) { w.node().Annotations = nil },
		},
		{
			"budget 0", budget("0"), nodereport.Stays,
			"stays: the budgets of NodePool general allow no node to go now (spec.disruption.budgets[0]: 0 nodes at all times). Removing the node would save $0.15/h",
			budget("1"),
		},
		{
			"budget window", func(w *world) {
				at := "0 22 * * *"
				w.pool().Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}, {Nodes: "0", Schedule: &at, Duration: &metav1.Duration{Duration: 8 * time.Hour}}}
			}, nodereport.Stays, "stays: the budgets of NodePool general allow no node to go now (spec.disruption.budgets[1]); more may go from 06:00 UTC",
			func(w *world) { w.Now = now.Add(3 * time.Hour) },
		},
		{
			"invalid budget", budget("many"), nodereport.Stays, "stays: a budget of NodePool general is invalid, so none of its nodes goes", budget("1"),
		},
		{
			"needed as it is", func(w *world) { w.addPod("web-2", "ip-10-0-1-7", "3") }, nodereport.Stays,
			"stays: nothing cheaper holds its pods: they would need m.large at $0.20/h, and it costs $0.20/h", nil,
		},
		{
			"young", func(w *world) { w.claim().CreationTimestamp = metav1.NewTime(now.Add(-20 * time.Second)) }, nodereport.Stays,
			"stays: m.small at $0.05/h would save $0.15/h of its $0.20/h, but: Node is young: its replacement saves $0.1500/h, which pays for the time in which both run once the node is 1m0s old", nil,
		},
		{
			"drifted by requirement", func(w *world) {
				drifted(w, disrupt.RequirementsDrifted)
				w.pool().Spec.Template.Spec.Requirements = append(w.pool().Spec.Template.Spec.Requirements, karpv1.Requirement{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z2"},
				})
			}, nodereport.Goes, "RequirementsDrifted: NodePool/general spec.template.spec.requirements[1]: topology.kubernetes.io/zone=z1 -> topology.kubernetes.io/zone=z2", nil,
		},
		{
			"drifted by template", func(w *world) {
				drifted(w, disrupt.NodePoolDrifted)
				w.pool().Spec.Template.Spec.ExpireAfter = karpv1.After(24 * time.Hour)
			}, nodereport.Goes, "is replaced in one of the next passes: it drifted (NodePoolDrifted: NodePool/general spec.template.spec.expireAfter: 720h -> 24h)", nil,
		},
		{
			"drifted, budget 0", func(w *world) {
				drifted(w, "AMIDrift")
				budget("0", karpv1.DisruptionDrifted)(w)
				w.addPod("web-2", "ip-10-0-1-7", "3")
			},
			nodereport.Stays, "stays for now: the budgets of NodePool general allow no node to go now", budget("1"),
		},
		{
			"drifted, pdb", func(w *world) { drifted(w, "AMIDrift"); w.addPDB("web") }, nodereport.Stays,
			"stays: the PodDisruptionBudget shop/web allows no disruption now", func(w *world) { w.PDBs = nil },
		},
		{
			"drifted, pods fit nowhere", func(w *world) {
				drifted(w, "AMIDrift")
				w.pod().Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "z9"}
			}, nodereport.Stays, "stays: Not all pods would schedule, shop/web-1 =>", func(w *world) { w.pod().Spec.NodeSelector = nil },
		},
		{"empty", noPods, nodereport.Goes, "goes in the next pass: it is empty, which saves $0.20/h", nil},
		{
			"empty, budget 0", func(w *world) { noPods(w); budget("0", karpv1.DisruptionEmpty)(w) }, nodereport.Stays,
			"stays: the budgets of NodePool general allow no node to go now", budget("100%"),
		},
		{
			"empty, consolidateAfter", func(w *world) {
				noPods(w)
				condition.Clear(w.claim(), karpv1.ConditionConsolidatable, now)
				w.pool().Spec.Disruption.ConsolidateAfter = karpv1.After(10 * time.Minute)
				w.claim().Status.LastPodEventTime = metav1.NewTime(now.Add(-4 * time.Minute))
			}, nodereport.Stays, "stays: it became empty 4m ago, and consolidateAfter of NodePool general is 10m: it can go from 03:18 UTC",
			func(w *world) { condition.SetTrue(w.claim(), karpv1.ConditionConsolidatable, now) },
		},
		{
			"consolidateAfter Never", func(w *world) { w.pool().Spec.Disruption.ConsolidateAfter = karpv1.Never() }, nodereport.Stays,
			"stays: the NodePool general has consolidateAfter Never. Removing the node would save $0.15/h",
			func(w *world) { w.pool().Spec.Disruption.ConsolidateAfter = karpv1.After(time.Minute) },
		},
		{
			"WhenEmpty", func(w *world) { w.pool().Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty }, nodereport.Stays,
			"stays: the NodePool general consolidates only empty nodes (WhenEmpty), and pod shop/web-1 runs here",
			func(w *world) {
				w.pool().Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
			},
		},
		{
			"static", func(w *world) { two := int64(2); w.pool().Spec.Replicas = &two }, nodereport.Stays,
			"stays: the NodePool general is static: it keeps 2 nodes whatever their pods need, and launches another if this one goes", nil,
		},
		{
			"nominated", func(w *world) { w.addPod("web-2", "", "1") }, nodereport.Stays, "stays: pending pod shop/web-2 is planned for it",
			func(w *world) { w.Pods = w.Pods[:1] },
		},
		{
			"launched for a pending pod", func(w *world) {
				p := w.addPod("web-2", "", "1")
				w.claim().Annotations = map[string]string{karpv1.AnnotationNominatedPods: string(p.UID)}
				p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "z9"}
				condition.SetUnknown(w.claim(), karpv1.ConditionInitialized, condition.Because("AwaitingReconciliation", ""), now)
				condition.SetTrue(w.claim(), karpv1.ConditionInitialized, now.Add(-time.Second))
			}, nodereport.Stays, "stays: it was launched for pod shop/web-2, which is still pending", func(w *world) { w.Pods = w.Pods[:1] },
		},
		{
			"pool is gone", func(w *world) { w.NodePools[0].Name = "other" }, nodereport.Stays, "stays: its NodePool general does not exist", nil,
		},
		{
			"not managed", func(w *world) {
				w.NodeClaims = nil
				delete(w.node().Labels, karpv1.LabelNodePool)
			}, nodereport.Unmanaged, "is not managed by a NodePool", nil,
		},
		{
			"label without claim", func(w *world) { w.NodeClaims = nil }, nodereport.Unmanaged,
			"has the label karpenter.sh/nodepool=general, but no NodeClaim stands for it", nil,
		},
		{
			"startup taint", func(w *world) {
				starting(w)
				taint := corev1.Taint{Key: "cni.example.com/not-ready", Effect: corev1.TaintEffectNoSchedule}
				w.claim().Spec.StartupTaints, w.node().Spec.Taints = []corev1.Taint{taint}, []corev1.Taint{taint}
			}, nodereport.Starting, "is not initialized after 1d: it waits for the startup taint cni.example.com/not-ready:NoSchedule", nil,
		},
		{
			"not Ready", func(w *world) {
				starting(w)
				w.node().Status.Conditions[0] = corev1.NodeCondition{
					Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "cni plugin not initialized",
				}
			}, nodereport.Starting, "it waits for kubelet to report Ready (KubeletNotReady: cni plugin not initialized)", nil,
		},
		{
			"device missing", func(w *world) {
				starting(w)
				w.claim().Status.Allocatable = enginetest.Resources("cpu", "4", "nvidia.com/gpu", "1")
			}, nodereport.Starting, "it waits for the resource nvidia.com/gpu", nil,
		},
		{
			"launch fails", func(w *world) {
				w.Nodes, w.Pods, w.claim().Status = nil, nil, karpv1.NodeClaimStatus{}
				condition.SetFalse(w.claim(), karpv1.ConditionLaunched, condition.Because("InsufficientCapacity", "no offering has capacity"), now)
			}, nodereport.Starting, "has no instance after 1d: InsufficientCapacity: no offering has capacity", nil,
		},
		{
			"does not join", func(w *world) {
				w.Nodes, w.Pods = nil, nil
				condition.SetUnknown(w.claim(), karpv1.ConditionRegistered, condition.Because("RoleNotMapped", "the role of the node is not mapped"), now)
			}, nodereport.Starting, "has instance i-ip-10-0-1-7, which has not joined the cluster after 1d: RoleNotMapped: the role of the node is not mapped", nil,
		},
		{
			"expires soon, and its NodePool replaces it before", func(w *world) { expiresSoon(w, "100%") }, nodereport.Goes,
			"is replaced in one of the next passes: its expireAfter of 30h passes at ", nil,
		},
		{
			"expires soon, and the budget keeps it until then", func(w *world) { expiresSoon(w, "0") }, nodereport.Stays,
			"stays for now: the budgets of NodePool general allow no node to go now", func(w *world) { expiresSoon(w, "100%") },
		},
		{
			"expires soon, and the annotation cannot be read", func(w *world) {
				expiresSoon(w, "0")
				w.pool().Annotations[karpv1.AnnotationExpiration] = `{"mode":"Gracefully"}`
			}, nodereport.Stays, "stays: the budgets of NodePool general allow no node to go now", func(w *world) { expiresSoon(w, "100%") },
		},
		{
			"expired", func(w *world) { w.claim().Spec.ExpireAfter = karpv1.After(12 * time.Hour) }, nodereport.Goes,
			"goes now: it has reached its expireAfter of 12h", nil,
		},
		{
			"another controller disrupts it", func(w *world) { w.node().Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()} },
			nodereport.Leaving, "is about to be removed: it has the taint karpenter.sh/disrupted:NoSchedule", nil,
		},
		{
			"interrupted", func(w *world) {
				condition.SetTrueWithReason(w.claim(), karpv1.ConditionDisruptionReason, condition.Because(karpv1.ReasonSpotInterrupted, ""), now)
				w.claim().DeletionTimestamp = &metav1.Time{Time: now}
			}, nodereport.Leaving, "is being removed because EC2 reclaims its spot instance; 1 pod to evict yet, such as shop/web-1", nil,
		},
	}
}

func explained(t *testing.T, w *world) *nodereport.Report {
	t.Helper()
	v := w.view(t)
	var r *nodereport.Report
	var err error
	if len(w.Nodes) == 0 {
		r, err = nodereport.OfClaim(v, w.claim().Name)
	} else {
		r, err = nodereport.OfNode(v, w.node().Name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSituations(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			w := lone()
			s.plant(w)
			r := explained(t, w)
			if r.Verdict.State != s.state || !strings.Contains(r.Verdict.Text, s.says) {
				t.Errorf("%s: %s\nwant %s: %s", r.Verdict.State, r.Verdict.Text, s.state, s.says)
			}
			if s.fix == nil {
				return
			}
			s.fix(w)
			if r := explained(t, w); r.Verdict.State != nodereport.Goes {
				t.Errorf("after the change that is proposed: %s", r.Verdict.Text)
			}
		})
	}
}

// A PodDisruptionBudget with unhealthy pods requests healthy pods, not for more of them.
func TestUnhealthyPodsOfABudget(t *testing.T) {
	w := lone()
	w.addPDB("web")
	w.PDBs[0].Status = policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 0, DesiredHealthy: 1, ExpectedPods: 1}
	r := explained(t, w)
	if len(r.Blockers) == 0 || !strings.Contains(r.Blockers[0].Change, "make its pods healthy: it wants 1, 0 are") {
		t.Errorf("%+v", r.Blockers)
	}
}

func TestAnEmptyNodeForPendingPodsSavesNothing(t *testing.T) {
	w := lone()
	w.Pods = nil
	w.addPod("web-2", "", "1")
	r := explained(t, w)
	if r.Verdict.State != nodereport.Stays || strings.Contains(r.Verdict.Text, "save") || r.Removal != nil {
		t.Errorf("%s: %s, removal %+v", r.Verdict.State, r.Verdict.Text, r.Removal)
	}
}

func TestUnknownNames(t *testing.T) {
	v := lone().view(t)
	if _, err := nodereport.OfNode(v, "nothing"); err == nil {
		t.Error("no error for a node that does not exist")
	}
	if _, err := nodereport.OfClaim(v, ""); err == nil {
		t.Error("no error for a claim without a name")
	}
}

// A search that stopped before it came to the node reports it in the verdict, with what the node's removal alone would save; and
// a node that something protects needs no search.
func TestALimitedSearchSaysThatItStopped(t *testing.T) {
	w := lone()
	w.search = consolidate.Settings{MaxSteps: 1}
	const want = "stays for now: nothing protects it, and m.small at $0.05/h could take its place, which saves $0.15/h. The search for " +
		"cheaper nodes stopped before it came to this one: --full searches on"
	if r := explained(t, w); r.Verdict.State != nodereport.Stays || !strings.Contains(r.Verdict.Text, want) {
		t.Errorf("%s, want %s", r.Verdict.Text, want)
	}
	w.addPDB("web")
	if r := explained(t, w); strings.Contains(r.Verdict.Text, "--full") {
		t.Errorf("%s", r.Verdict.Text)
	}
}

// expiresSoon is a node that its NodePool replaces before it expires, within a budget.
func expiresSoon(w *world, budget string) {
	w.claim().Spec.ExpireAfter = karpv1.After(30 * time.Hour)
	w.pool().Annotations = map[string]string{karpv1.AnnotationExpiration: `{"mode":"Graceful","lead":"20h","grace":"2h"}`}
	w.pool().Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
}
