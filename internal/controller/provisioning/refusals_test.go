package provisioning

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// refusingCluster is a cluster in which nodes come up and kube-scheduler binds no pod to them.
type refusingCluster struct {
	*controllertest.Fixture
	t *testing.T
	p *Provisioner
	// spoil is what happens to each Node when it is created.
	spoil func(*corev1.Node)
	// later is what happens to a Node after some time.
	later      func(*corev1.Node)
	laterAfter time.Duration
	// consolidates removes each node that nothing came to, as soon as it may.
	consolidates bool
	// events are the events that were recorded.
	events []string
}

func newRefusingCluster(t *testing.T, spoil func(*corev1.Node), objects ...client.Object) *refusingCluster {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.UID, p.Generation = "pool", 1
		reconciled(p)
	})
	class := controllertest.Class(func(c *awsv1.EC2NodeClass) { c.UID = "class" })
	c := &refusingCluster{Fixture: controllertest.New(t, append(objects, class, pool)...), t: t, spoil: spoil}
	c.restart()
	return c
}

// restart replaces the process: all that it has in memory is lost.
func (c *refusingCluster) restart() {
	c.p = provisioner(c.Fixture)
	c.p.State = cluster.NewState(cluster.Config{
		Cache: c.API, Live: c.API, Types: fakeInstanceTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {},
		Labels: engine.World(nil).Labels, NominationWindow: 20 * time.Second, TaintGracePeriod: time.Minute, Now: c.Now,
	})
}

// run passes every ten seconds. A node takes ten seconds to come up.
func (c *refusingCluster) run(d time.Duration) {
	for end := c.Clock.Add(d); c.Clock.Before(end); c.Clock = c.Clock.Add(10 * time.Second) {
		for _, claim := range claims(c.t, c.API) {
			c.advance(&claim)
		}
		run(c.t, c.p)
		c.events = append(c.events, c.RecordedEvents()...)
	}
}

// advance gives a claim its node, and stops it if consolidation would.
func (c *refusingCluster) advance(claim *karpv1.NodeClaim) {
	if initialized, _ := condition.Get(claim, karpv1.ConditionInitialized); initialized.Status == metav1.ConditionTrue {
		node := c.Node("node-" + claim.Name)
		age := c.Clock.Sub(initialized.LastTransitionTime.Time)
		if c.later != nil && age >= c.laterAfter {
			c.later(node)
			c.Do(c.API.Update(c.Context(), node))
		}
		switch {
		case claim.DeletionTimestamp != nil:
			node.Finalizers, claim.Finalizers = nil, nil
			c.Do(c.API.Update(c.Context(), node))
			c.Do(c.API.Delete(c.Context(), node))
			c.Do(c.API.Update(c.Context(), claim))
		case c.consolidates && age > 10*time.Second:
			condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, condition.Because("Empty", ""), c.Clock)
			c.Do(c.API.Status().Update(c.Context(), claim))
			c.Do(c.API.Delete(c.Context(), claim))
		}
		return
	}
	claim.Status.ProviderID, claim.Status.NodeName = "aws:///us-east-1a/i-"+claim.Name, "node-"+claim.Name
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized} {
		condition.SetTrue(claim, typ, c.Clock)
	}
	c.Do(c.API.Status().Update(c.Context(), claim))
	if claim.CreationTimestamp.IsZero() { // which the API server sets
		claim.CreationTimestamp = metav1.NewTime(c.Clock)
		c.Do(c.API.Update(c.Context(), claim))
	}
	c.Do(c.API.Create(c.Context(), controllertest.ReadyNode(claim.Name, func(n *corev1.Node) {
		for key, value := range claim.Labels {
			n.Labels[key] = value
		}
		n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("7Gi")
		n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("29")
		n.CreationTimestamp = metav1.NewTime(c.Clock)
		if c.spoil != nil {
			c.spoil(n)
		}
	})))
}

// reconciled sets the conditions of a pool anew after a change.
func reconciled(p *karpv1.NodePool) {
	for _, typ := range p.ConditionTypes().Dependents {
		condition.SetTrue(p, typ, controllertest.Start)
	}
}

func (c *refusingCluster) pool() *karpv1.NodePool {
	pool := controllertest.Pool("general")
	c.Get(pool)
	return pool
}

func foreignTaint(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule})
}

func launched(c *refusingCluster) int {
	return int(testutil.ToFloat64(c.Metrics.ClaimsCreated.WithLabelValues("provisioned", "general", "false")))
}

// ownedPending is a pod of a ReplicaSet.
func ownedPending(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pending(name, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web", "pod-template-hash": "1"}
		p.Status.Conditions[0].Message = "0/2 nodes are available: 2 node(s) had untolerated taint(s)."
	}}, change...)...)
}

func TestNoMoreThanThreeNodesAreLaunchedForPodsThatEachNodeRefuses(t *testing.T) {
	gold := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.com/tier": "gold"} }
	for _, tt := range []struct {
		name         string
		spoil        func(*corev1.Node)
		consolidates bool
		pods         int
		change       func(*corev1.Pod)
		most         int
		cause, says  string
	}{
		{
			"a taint of something else", foreignTaint, false, 1, nil, 3, "NodeTainted",
			"has taint node.cilium.io/agent-not-ready:NoSchedule, which Cilium removes, that no startupTaint of NodePool general declares",
		},
		{"a taint of something else, and empty nodes go", foreignTaint, true, 1, nil, 3, "NodeTainted", "startupTaints"},
		{"for 40 equal pods on two and more nodes", foreignTaint, true, 40, nil, 6, "NodeTainted", "startupTaints"},
		{
			"something removes a label", func(n *corev1.Node) { delete(n.Labels, "example.com/tier") }, true, 1, gold, 3, "NodeLabelsDiffer",
			"lacks the label example.com/tier=gold",
		},
		{"kubelet has less than the catalog says", func(n *corev1.Node) {
			n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("400m")
		}, true, 1, nil, 3, "NodeTooSmall", "has 400m of cpu left for the pod, which requests 500m"},
		{"nothing that a plan can see, and empty nodes go", nil, true, 1, nil, 3, "SchedulerRefuses", "0/2 nodes are available"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pods []client.Object
			for i := range tt.pods {
				pods = append(pods, ownedPending(fmt.Sprint("web-", i), func(p *corev1.Pod) {
					if tt.change != nil {
						tt.change(p)
					}
				}))
			}
			c := newRefusingCluster(t, tt.spoil, pods...)
			pool := c.pool()
			pool.Spec.Template.Labels = map[string]string{"example.com/tier": "gold"}
			c.Do(c.API.Update(t.Context(), pool))
			c.consolidates = tt.consolidates
			c.run(25 * time.Second)
			first := launched(c)
			c.run(2 * time.Hour)
			if n := launched(c); n > max(tt.most, first) || n < min(2, tt.most) {
				t.Errorf("%d nodes are launched, the first %d; want at most %d", n, first, tt.most)
			}
			got, _ := condition.Get(c.pool(), karpv1.ConditionPodsRefused)
			if got.Status != metav1.ConditionTrue || got.Reason != tt.cause || !strings.Contains(got.Message, tt.says) {
				t.Errorf("condition %s %s: %s", got.Status, got.Reason, got.Message)
			}
			if !slices.ContainsFunc(c.events, func(e string) bool {
				return strings.HasPrefix(e, "Warning PodsRefused Node node-") && strings.Contains(e, tt.says)
			}) {
				t.Error("no event on the pod says so")
			}
			if n := testutil.ToFloat64(c.Metrics.Unschedulable.WithLabelValues("provisioner")); n != 0 {
				t.Errorf("%v pods count as unschedulable, which is a second alert for one cause", n)
			}
			if n := testutil.ToFloat64(c.Metrics.RefusedPods.WithLabelValues("general", "held")); int(n) != tt.pods {
				t.Errorf("%v pods are held, want %d: %s", n, tt.pods, got.Message)
			}
			if n := testutil.ToFloat64(c.Metrics.RefusedNodes.WithLabelValues("general", tt.cause)); n < 2 {
				t.Errorf("%v nodes are counted", n)
			}
		})
	}
}

// A process that is killed at any time goes on counting where the one before was.
func TestRestartsForgetNoRefusals(t *testing.T) {
	c := newRefusingCluster(t, foreignTaint, ownedPending("web-a"))
	c.consolidates = true
	for range 120 {
		c.run(30 * time.Second)
		c.restart()
	}
	if n := launched(c); n != 3 {
		t.Errorf("%d nodes are launched with a restart every 30 s, want 3", n)
	}
}

// The owner makes the pod again under another name, before and after its node is up.
func TestPodsThatAreMadeAgainCount(t *testing.T) {
	c := newRefusingCluster(t, foreignTaint)
	c.consolidates = true
	for i := range 200 {
		p := ownedPending(fmt.Sprint("web-", i))
		c.Do(c.API.Create(t.Context(), p))
		c.run(30 * time.Second)
		c.Do(c.API.Delete(t.Context(), p))
	}
	if n := launched(c); n > 3 {
		t.Errorf("%d nodes are launched for a pod that is made again every 30 s, want at most 3", n)
	}
}

// The taint goes after a while: its node is waited for.
func TestATaintThatGoesIsWaitedFor(t *testing.T) {
	c := newRefusingCluster(t, foreignTaint, ownedPending("web-a"), ownedPending("web-b"))
	c.later, c.laterAfter = func(n *corev1.Node) { n.Spec.Taints = nil }, 20*time.Second
	c.run(40 * time.Second)
	for _, name := range []string{"web-a", "web-b"} {
		pod := controllertest.Pod(name, "")
		c.Get(pod)
		c.bindTo(pod, "node-"+claims(t, c.API)[0].Name)
	}
	c.run(10 * time.Minute)
	if n := launched(c); n != 1 {
		t.Errorf("%d nodes are launched, want 1", n)
	}
	if _, refused := condition.Get(c.pool(), karpv1.ConditionPodsRefused); refused {
		t.Error("a node that was slow to be usable counts as one that refuses")
	}
}

// Other pods get their node at once, beside any number of pods that are refused.
func TestOtherPodsGetTheirNodesAtOnce(t *testing.T) {
	c := newRefusingCluster(t, foreignTaint, ownedPending("web-a"))
	c.consolidates = true
	c.run(20 * time.Minute)
	before := launched(c)
	c.Do(c.API.Create(t.Context(), pending("other", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})))
	run(t, c.p)
	if n := launched(c) - before; n != 1 {
		t.Errorf("%d nodes are launched for a pod that nothing refuses, want 1", n)
	}
}

func TestAPersonBeginsAfresh(t *testing.T) {
	for _, tt := range []struct {
		name string
		act  func(*refusingCluster)
	}{
		{"removes the history", func(c *refusingCluster) {
			pool := c.pool()
			delete(pool.Annotations, karpv1.AnnotationRefusedPods)
			c.Do(c.API.Update(c.Context(), pool))
		}},
		{"edits the pool", func(c *refusingCluster) {
			pool := c.pool()
			pool.Generation++
			reconciled(pool)
			status := pool.DeepCopy()
			c.Do(c.API.Update(c.Context(), pool))
			status.ResourceVersion = pool.ResourceVersion
			c.Do(c.API.Status().Update(c.Context(), status))
		}},
		{"edits the pod's template", func(c *refusingCluster) {
			c.Do(c.API.Delete(c.Context(), ownedPending("web-a")))
			c.Do(c.API.Create(c.Context(), ownedPending("web-b", func(p *corev1.Pod) { p.Labels["pod-template-hash"] = "2" })))
		}},
		{"edits the pod", func(c *refusingCluster) {
			pod := controllertest.Pod("web-a", "")
			c.Get(pod)
			pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
			c.Do(c.API.Update(c.Context(), pod))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newRefusingCluster(t, foreignTaint, ownedPending("web-a"))
			c.consolidates = true
			c.run(time.Hour)
			if n := launched(c); n != 3 {
				t.Fatalf("%d nodes are launched, want 3", n)
			}
			tt.act(c)
			c.run(30 * time.Second)
			if n := launched(c); n != 4 {
				t.Errorf("%d nodes are launched, want another one at once", n-3)
			}
			c.run(time.Hour)
			if n := launched(c); n != 6 {
				t.Errorf("%d nodes are launched in the end, want 3 more", n)
			}
		})
	}
}

// kube-scheduler prefers the emptiest node, and knows nothing of what a node was launched for. So small pods come to each node, and most of
// the large ones find no room on theirs. All nodes are of use, and the large pods get others.
func TestPodsWhosePlacesOtherWaitingPodsTookGetOtherNodes(t *testing.T) {
	var pods []client.Object
	for i := range 60 {
		pods = append(pods, ownedPending(fmt.Sprint("small-", i)))
		if i < 30 {
			pods = append(pods, ownedPending(fmt.Sprint("large-", i), func(p *corev1.Pod) {
				p.Labels["app"] = "large"
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
			}))
		}
	}
	c := newRefusingCluster(t, nil, pods...)
	for range 60 {
		c.run(10 * time.Second)
		c.bindToEmptiest()
	}
	c.forPods(func(p *corev1.Pod) {
		if p.Spec.NodeName == "" {
			t.Errorf("pod %s is pending after 10 min", p.Name)
		}
	})
	if n := launched(c); n > 60 {
		t.Errorf("%d nodes are launched for 90 pods", n)
	}
	if n := testutil.CollectAndCount(c.Metrics.RefusedNodes); n != 0 {
		t.Error("nodes count as launched in vain, and hold pods")
	}
}

func (c *refusingCluster) forPods(do func(*corev1.Pod)) {
	var list corev1.PodList
	c.Do(c.API.List(c.Context(), &list))
	slices.SortStableFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(b.Name, a.Name) }) // small first
	for i := range list.Items {
		do(&list.Items[i])
	}
}

// bindToEmptiest binds each pending pod that fits on a node to the one with the most cpu left.
func (c *refusingCluster) bindToEmptiest() {
	free, launchedFor := map[string]int64{}, map[string]string{}
	for _, claim := range claims(c.t, c.API) {
		name := "node-" + claim.Name
		if condition.IsTrue(&claim, karpv1.ConditionInitialized) {
			free[name] = c.Node(name).Status.Allocatable.Cpu().MilliValue()
			launchedFor[name] = claim.Annotations[karpv1.AnnotationNominatedPods] // unlike the name, the same in each run
		}
	}
	c.forPods(func(p *corev1.Pod) {
		free[p.Spec.NodeName] -= p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
	})
	delete(free, "")
	c.forPods(func(p *corev1.Pod) {
		emptiest := ""
		for name := range free {
			if emptiest == "" || free[name] > free[emptiest] || free[name] == free[emptiest] && launchedFor[name] < launchedFor[emptiest] {
				emptiest = name
			}
		}
		want := p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		if p.Spec.NodeName != "" || free[emptiest] < want {
			return
		}
		free[emptiest] -= want
		c.bindTo(p, emptiest)
	})
}

// bindTo binds a pod to a node.
func (c *refusingCluster) bindTo(p *corev1.Pod, node string) {
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Clock),
	}}
	c.Do(c.API.Update(c.Context(), p))
}

// When the pods are gone, so is what reports them.
func TestReportsEndWithThePods(t *testing.T) {
	c := newRefusingCluster(t, foreignTaint, ownedPending("web-a"))
	c.consolidates = true
	c.run(time.Hour)
	c.Do(c.API.Delete(t.Context(), ownedPending("web-a")))
	run(t, c.p)
	if _, refused := condition.Get(c.pool(), karpv1.ConditionPodsRefused); refused {
		t.Error("the condition stays")
	}
	if n := testutil.CollectAndCount(c.Metrics.RefusedPods); n != 0 {
		t.Errorf("%d series of the gauge stay", n)
	}
}

// The counts of a pool change with each node, so its cached object is often an old one.
func TestTheHistoryIsWrittenThoughThePoolHasChanged(t *testing.T) {
	c := newRefusingCluster(t, foreignTaint, ownedPending("web"))
	conflicts := 0
	c.p.Client = interceptor.NewClient(c.API, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*karpv1.NodePool); ok && conflicts == 0 {
				conflicts++
				changed := c.pool()
				changed.Labels = map[string]string{"team": "a"}
				c.Do(c.API.Update(ctx, changed))
			}
			return api.Patch(ctx, o, p, opts...)
		},
	})
	c.run(3 * time.Minute)
	pool := c.pool()
	if conflicts == 0 || pool.Annotations[karpv1.AnnotationRefusedPods] == "" || !condition.IsTrue(pool, karpv1.ConditionPodsRefused) {
		t.Errorf("after %d conflicts, the pool has annotations %v and conditions %v", conflicts, pool.Annotations, pool.Status.Conditions)
	}
	if pool.Labels["team"] != "a" {
		t.Error("the other writer's change is lost")
	}
}
