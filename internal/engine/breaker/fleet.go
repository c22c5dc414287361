package breaker

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// judgedPerImage sets how many claims of an image are judged, the newest: more than count. Those in their soak are judged in any case.
const judgedPerImage = 40

// Fleet describes what the soaks of a pool's nodes have shown.
type Fleet struct {
	// Verdicts are the verdicts on claims that were launched with what pool and class are now.
	Verdicts []Verdict
	// Health holds what the nodes of these claims show; old claims are taken to be healthy.
	Health map[types.UID]Health
	// Rollout is true if the pool has nodes that it would launch differently now.
	Rollout bool
	// Images are those that the pool launches, OldZones has the zone of each node that it would launch differently now. Proven is true if
	// these images are known to be good, in place of some that were rolled back.
	Images   []string
	OldZones []string
	Proven   bool
}

// Members are the claims of a pool.
type Members struct {
	Pool   *karpv1.NodePool
	Class  *awsv1.EC2NodeClass
	Claims []*karpv1.NodeClaim
	// Health reads the Node of one of them.
	Health func(*karpv1.NodeClaim) (Health, error)
	Windows
	// Canary judges nodes by their pods, too; nil for a pool that does not roll out with canaries.
	Canary *Canary
}

// Judge returns what the soaks of the nodes have shown by now.
func (m Members) Judge(now time.Time) (Fleet, error) {
	out := Fleet{Health: map[types.UID]Health{}, Images: Images(m.Class), Proven: proven(m.Pool, m.Class)}
	perImage := map[string]int{}
	siblings := sync.OnceValues(func() ([]*corev1.Pod, error) { return m.siblings(now) })
	for _, c := range slices.SortedStableFunc(slices.Values(m.Claims), func(a, b *karpv1.NodeClaim) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}) {
		if !current(c, m.Pool, m.Class) {
			if c.DeletionTimestamp == nil {
				out.Rollout, out.OldZones = true, append(out.OldZones, c.Labels[corev1.LabelTopologyZone])
			}
			continue
		}
		image := c.Status.ImageID
		perImage[image]++
		if old := now.Sub(c.CreationTimestamp.Time) > InitializeWithin+2*m.soak(); old && perImage[image] > judgedPerImage && m.Canary == nil {
			continue
		}
		if condition.IsTrue(c, karpv1.ConditionInitialized) {
			h, err := m.Health(c)
			if err == nil && m.Canary != nil {
				h, err = m.examine(c, h, siblings, now)
			}
			if err != nil {
				return Fleet{}, err
			}
			out.Health[c.UID] = h
		}
		v := m.Windows.Judge(c, out.Health[c.UID], now)
		if m.Canary != nil {
			v = m.judgeCanary(v, c, now)
		}
		out.Verdicts = append(out.Verdicts, v)
	}
	return out, nil
}

// current reports whether a claim was launched with what its pool and class are now.
func current(claim *karpv1.NodeClaim, pool *karpv1.NodePool, class *awsv1.EC2NodeClass) bool {
	same := func(of, is map[string]string, key string) bool { return of[key] == "" || of[key] == is[key] }
	images := Images(class)
	return !condition.IsTrue(claim, karpv1.ConditionDrifted) &&
		same(claim.Annotations, pool.Annotations, karpv1.AnnotationNodePoolHash) &&
		same(claim.Annotations, class.Annotations, awsv1.AnnotationNodeClassHash) &&
		(claim.Status.ImageID == "" || len(images) == 0 || slices.Contains(images, claim.Status.ImageID))
}

// Images returns those that a node class launches.
func Images(class *awsv1.EC2NodeClass) []string {
	out := make([]string, len(class.Status.AMIs))
	for i, ami := range class.Status.AMIs {
		out[i] = ami.ID
	}
	return out
}

// NoNode is the Health of a claim without a Node.
func NoNode(now time.Time) Health { return Health{Gone: true, Fault: "its Node is gone", Since: now} }

// HealthOf returns what a node's conditions show: the earliest fault, else since when the node is ready. A condition that repair covers
// counts at once, not after its toleration: a node that is due in half an hour is no success.
func HealthOf(node *corev1.Node, faults *repair.Policies) Health {
	h := Health{}
	add := func(c corev1.NodeCondition) {
		if h.Fault != "" && !c.LastTransitionTime.Time.Before(h.Since) {
			return
		}
		h.Fault, h.Since = fmt.Sprintf("%s is %s", c.Type, c.Status), c.LastTransitionTime.Time
		if c.Reason != "" {
			h.Fault += " (" + c.Reason + ")"
		}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c
		}
	}
	if ready.Status != corev1.ConditionTrue {
		add(ready)
	}
	if faults != nil {
		for _, f := range faults.Faults(node) {
			add(f.Condition)
		}
	}
	if h.Fault == "" {
		h.Since = ready.LastTransitionTime.Time
	}
	return h
}
